//! Running the binary, and a sidecar for it to call.

use countersign::client::{self, Authenticated, Bearer};
use countersign::proto::agent_service_client::AgentServiceClient;
use countersign::proto::{Approval, Invocation, RequestApprovalRequest};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const BINARY: &str = env!("CARGO_BIN_EXE_countersign");
/// Far longer than anything takes, also on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
pub const GMAIL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policy/gmail.yaml");

/// A folder of its own, removed at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("countersign-cli-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|cause| panic!("{cause} in {self:?}"))
    }

    /// That these texts stand in the output, one after the other.
    pub fn in_order(&self, texts: &[&str]) {
        let mut rest = self.out.as_str();
        for text in texts {
            let at = rest.find(text).unwrap_or_else(|| panic!("{text:?} is not where it should be in\n{}", self.out));
            rest = &rest[at + text.len()..];
        }
    }
}

/// The binary, in an environment that says nothing to it.
pub struct Countersign {
    command: Command,
    input: Vec<u8>,
}

impl Countersign {
    pub fn new(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        say_nothing(&mut command);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, input: Vec::new() }
    }

    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Run by a shell, as this script's `$0` and arguments.
    pub fn through(mut self, script: &str) -> Self {
        let mut command = Command::new("sh");
        say_nothing(&mut command);
        command.args(["-c", script, BINARY]).args(self.command.get_args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        self
    }

    pub fn within(mut self, folder: &Folder) -> Self {
        self.command.current_dir(&folder.0);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn input(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.input = bytes.as_ref().to_vec();
        self
    }

    pub fn spawn(mut self) -> Child {
        self.command.spawn().unwrap()
    }

    pub fn run(mut self) -> Ran {
        let mut child = self.command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Whoever does not read its input to the end closes it early.
        let writing = std::thread::spawn(move || drop(stdin.write_all(&self.input)));
        let output = child.wait_with_output().unwrap();
        writing.join().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn say_nothing(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COUNTERSIGN_")) {
        command.env_remove(name);
    }
}

pub fn run(arguments: &[&str]) -> Ran {
    Countersign::new(arguments).run()
}

/// Opens a terminal, runs the rest of its arguments there, and types the first at the first question.
const TERMINAL: &str = "
import fcntl, os, pty, select, signal, struct, sys, termios
typed = sys.argv[1].encode()
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, int(os.environ['COLUMNS']), 0, 0))
    # Whoever runs the tests in the background may have had interrupts ignored, which is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
shown = b''
while select.select([terminal], [], [], 60)[0]:
    try:
        read = os.read(terminal, 65536)
    except OSError:
        break
    if not read:
        break
    shown += read
    if typed and b'[n]o: ' in shown:
        os.write(terminal, typed)
        typed = b''
sys.stdout.buffer.write(shown.replace(b'\\r\\n', b'\\n'))
sys.stdout.flush()
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.exit(code if code >= 0 else 256 + code)
";

/// Runs it at a terminal, where `typed` is typed once it asks. Everything shown is `out`; a code below 0 is a signal's.
pub fn at_a_terminal(arguments: &[&str], typed: &str, folder: &Folder) -> Ran {
    at_a_terminal_of(80, arguments, typed, folder)
}

/// As [`at_a_terminal`], with so many columns.
pub fn at_a_terminal_of(columns: u16, arguments: &[&str], typed: &str, folder: &Folder) -> Ran {
    let mut command = Command::new("python3");
    say_nothing(&mut command);
    command.args(["-c", TERMINAL, typed, BINARY]).args(arguments).env("TMPDIR", &folder.0);
    command.env("COLUMNS", columns.to_string());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let code = output.status.code().unwrap();
    Ran {
        code: if code > 127 { code - 256 } else { code },
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A `serve --dev` of its own, on free ports.
pub struct Serving {
    child: Child,
    pub address: String,
    pub health_address: String,
    pub folder: Folder,
    log: Arc<Mutex<String>>,
}

impl Serving {
    pub fn start(name: &str) -> Self {
        Self::on(name, "127.0.0.1:0")
    }

    /// Its doors there; a socket's path is taken from its folder on.
    pub fn on(name: &str, listen: &str) -> Self {
        Self::dev(Folder::new(name), listen)
    }

    fn dev(folder: Folder, listen: &str) -> Self {
        let arguments = ["serve", "--dev", "--dev-dir", "dev", "--listen", listen, "--health-listen", "127.0.0.1:0"];
        Self::of(folder, |command| command.arguments(&arguments))
    }

    /// Any other that serves, started in this folder.
    pub fn of(folder: Folder, told: impl FnOnce(Countersign) -> Countersign) -> Self {
        let mut child = told(Countersign::new(&[])).within(&folder).spawn();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (found, serving) = mpsc::channel();
        let log = Arc::<Mutex<String>>::default();
        let writes = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
                writes.lock().unwrap().push_str(&line);
                if let (Some(address), Some(health)) = (after(&line, " address="), after(&line, " health_address=")) {
                    let _ = found.send((address, health));
                }
                line.clear();
            }
        });
        let (address, health_address) = serving.recv_timeout(PATIENCE).expect("the sidecar serves");
        Self { child, address, health_address, folder, log }
    }

    /// The same once more, over the same folder, after this one has ended.
    pub fn again(mut self) -> Self {
        self.ends();
        let empty = Folder::new("left");
        let folder = std::mem::replace(&mut self.folder, empty);
        Self::dev(folder, &self.address.clone())
    }

    /// What it has logged up to now.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for its end, which somebody has asked for.
    pub fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn token_file(&self, role: &str) -> PathBuf {
        self.folder.path(&format!("dev/{role}.token"))
    }

    /// `approvals …` as `person`, with the approver's token.
    pub fn approvals(&self, person: &str, arguments: &[&str]) -> Ran {
        let mut all = vec!["approvals"];
        all.extend(arguments);
        if !person.is_empty() {
            all.extend(["--as", person]);
        }
        Countersign::new(&all)
            .env("COUNTERSIGN_SERVER", &self.address)
            .env("COUNTERSIGN_TOKEN_FILE", self.token_file("approver"))
            .run()
    }

    /// The agent asks.
    pub fn ask(&self, requests: impl IntoIterator<Item = RequestApprovalRequest>) -> Vec<Approval> {
        self.ask_at(&self.address, requests)
    }

    /// The agent asks, at this address of the sidecar.
    pub fn ask_at(&self, address: &str, requests: impl IntoIterator<Item = RequestApprovalRequest>) -> Vec<Approval> {
        let token = fs::read_to_string(self.token_file("agent")).unwrap();
        let bearer = Bearer::new(token.trim()).unwrap();
        runtime().block_on(async {
            let channel = client::channel_to(address).unwrap();
            let mut agent: AgentServiceClient<Authenticated> = client::agent(channel, bearer);
            let mut approvals = Vec::new();
            for request in requests {
                let answer = agent.request_approval(request).await.unwrap().into_inner();
                approvals.push(answer.approval.unwrap());
            }
            approvals
        })
    }

    pub fn ask_one(&self, arguments: &str) -> Approval {
        self.ask([question(arguments, "")]).remove(0)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// An email of dana's that assistant wants to send.
pub fn question(arguments: &str, note: &str) -> RequestApprovalRequest {
    RequestApprovalRequest {
        invocation: Some(Invocation {
            principal: "dana".to_owned(),
            agent: "assistant".to_owned(),
            connector: "gmail".to_owned(),
            account: "work-mailbox-a".to_owned(),
            action: "GMAIL_SEND_EMAIL".to_owned(),
            arguments_json: arguments.to_owned(),
            ..Invocation::default()
        }),
        agent_note: note.to_owned(),
        ..RequestApprovalRequest::default()
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// That nothing in it is interpreted by a terminal, or invisible.
pub fn harmless(text: &str) {
    for character in text.chars() {
        let hidden = countersign::domain::text::is_hidden(character) && character != '\n';
        assert!(!hidden, "U+{:04X} in {text:?}", u32::from(character));
    }
}

/// Reads standard output until it has `text`.
pub fn read_until(child: &mut Child, text: &str) {
    let mut out = child.stdout.take().unwrap();
    let mut read = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&read).contains(text) {
        assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended before {text:?}");
        read.extend(byte);
    }
    child.stdout = Some(out);
}

fn after(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(key)?;
    Some(rest.split_whitespace().next()?.to_owned())
}
