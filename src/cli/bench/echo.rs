//! The floor: a call that is answered with fixed bytes, on the doors' own transport, with nothing before or behind it. It
//! is served by `bench` alone.

use crate::app::{Entrance, Incoming, Listener, OwnThread, server};
use crate::cli::exit::Exit;
use clap::Args;
use prost::bytes::Bytes;
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Read as _, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The one method.
pub(in crate::cli) const PATH: &str = "/countersign.bench.Echo/Echo";

/// What the floor's server is told.
#[derive(Args, Debug)]
pub(in crate::cli) struct EchoCommand {
    /// The bytes of an answer's field.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    answer: usize,
}

/// Serves on a free port, which it prints, until its input ends.
pub(in crate::cli) fn run(command: &EchoCommand, out: &mut dyn Write) -> io::Result<Exit> {
    let thread = OwnThread::start("doors")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let bound = thread.handle().spawn(TcpListener::bind("127.0.0.1:0"));
    let listener = runtime.block_on(bound).map_err(io::Error::other)??;
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let echo = Echo(vec![b'a'; command.answer].into());
    let incoming = Incoming::new(Listener::Tcp(listener), Entrance::default());
    thread.handle().spawn(server().add_service(echo).serve_with_incoming(incoming));
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(Exit::Done)
}

/// A service as the compiler of protos writes it, of one method.
#[derive(Clone)]
struct Echo(Bytes);

impl NamedService for Echo {
    const NAME: &'static str = "countersign.bench.Echo";
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(echo, request).await) })
    }
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Answering<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<Bytes>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move { Ok(Response::new(answer)) })
    }
}
