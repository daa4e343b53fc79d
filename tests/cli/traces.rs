//! The caller's trace in the log of the real binary.

use crate::support::{Countersign, Folder, question, runtime};
use countersign::client::{self, Authenticated, Bearer};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::{EvaluateRequest, RequestApprovalRequest};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use tonic::Request;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A sidecar whose log is read line by line.
struct Logging {
    child: Child,
    lines: Receiver<Value>,
    folder: Folder,
    address: String,
}

impl Logging {
    fn start(name: &str, filter: &str) -> Self {
        let folder = Folder::new(name);
        let listen = ["--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];
        let log = ["--log-format", "json", "--log-filter", filter];
        let serve = Countersign::new(&["serve", "--dev", "--dev-dir", "dev"]).arguments(&listen).arguments(&log);
        let mut child = serve.within(&folder).spawn();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (found, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // What is said before the log begins is for people.
                if let Ok(line) = serde_json::from_str(&line) {
                    let _ = found.send(line);
                }
            }
        });
        let mut logging = Self { child, lines, folder, address: String::new() };
        logging.address = logging.line("serving")["address"].as_str().unwrap().to_owned();
        logging
    }

    /// The next line with this message.
    fn line(&self, message: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("never: {message}"));
            if line["message"] == message {
                return line;
            }
        }
    }

    fn call<T>(&self, call: impl AsyncFnOnce(AgentServiceClient<Authenticated>) -> T) -> T {
        let token = std::fs::read_to_string(self.folder.path("dev/agent.token")).unwrap();
        let bearer = Bearer::new(token.trim()).unwrap();
        runtime().block_on(async {
            let channel = client::channel_to(&self.address).unwrap();
            call(client::agent(channel, bearer)).await
        })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn within<T>(message: T, traceparent: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

fn evaluate() -> EvaluateRequest {
    EvaluateRequest { invocation: question("{}", "").invocation, explain: false }
}

#[test]
fn a_call_is_told_of_in_the_callers_trace_and_in_no_other() {
    let logging = Logging::start("traces", "countersign=debug");
    logging.call(async |mut agent| {
        agent.evaluate(within(evaluate(), &format!("00-{TRACE}-{PARENT}-01"))).await.unwrap();
        agent.evaluate(Request::new(evaluate())).await.unwrap();
        // One that cannot be read is ignored, and never written.
        agent.evaluate(within(evaluate(), &format!("00-{TRACE}-{PARENT}-01-\"hostile\""))).await.unwrap();
    });
    let line = logging.line("a call ended");
    assert_eq!(line["span"]["trace_id"], TRACE, "{line}");
    assert_eq!(line["span"]["parent_span_id"], PARENT, "{line}");
    assert_eq!((&line["method"], &line["code"]), (&"countersign.v1.AgentService/Evaluate".into(), &"Ok".into()));
    for _ in 0..2 {
        let line = logging.line("a call ended");
        assert_eq!(line.get("span"), None, "{line}");
        assert!(!line.to_string().contains(TRACE) && !line.to_string().contains("hostile"), "{line}");
    }
}

#[test]
fn what_fails_is_logged_in_the_callers_trace_whatever_else_is_logged() {
    let logging = Logging::start("traces-of-failures", "error,countersign=info");
    let request = || RequestApprovalRequest { invocation: question("{}", "").invocation, ..Default::default() };
    for name in ["countersign.db", "countersign.db-wal", "countersign.db-shm"] {
        let _ = std::fs::remove_file(logging.folder.path(&format!("dev/{name}")));
    }
    logging.call(async |mut agent| {
        let failed = agent.request_approval(within(request(), &format!("00-{TRACE}-{PARENT}-00"))).await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Unavailable);
        assert!(!failed.message().contains(TRACE), "the trace is the caller's own, and nothing of ours");
    });
    let line = logging.line("the store does not answer");
    assert_eq!((&line["level"], &line["span"]["trace_id"]), (&"ERROR".into(), &TRACE.into()), "{line}");
    assert!(line["cause"].as_str().unwrap().contains("removed"), "{line}");
}
