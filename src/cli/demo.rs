//! `countersign demo`: a real sidecar in this process on free ports, an agent and a person as clients of it, everything in
//! a temporary folder. What is printed is what the sidecar answered; an answer that the story does not expect ends it.

mod mailbox;
mod sidecar;
mod story;

use super::exit::Exit;
use clap::{Args, ValueEnum};
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use story::Story;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

/// What `demo` is told.
#[derive(Args, Debug)]
pub(super) struct DemoCommand {
    /// Answer the question so, instead of asking at the terminal.
    #[arg(long, value_name = "ANSWER")]
    answer: Option<Given>,
}

/// An answer given beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Given {
    /// The email may be sent.
    Approve,
    /// It may not.
    Deny,
}

/// Why the story ended early.
#[derive(Debug)]
enum Stopped {
    /// The sidecar did not start.
    Start(String),
    /// The sidecar answered something else than the story expects.
    Unexpected {
        /// What was expected.
        expected: String,
        /// What came.
        answered: String,
    },
    /// The person gave no answer.
    Undecided,
    /// The person answered after the deadline.
    TooLate,
    /// A signal told it to stop.
    Interrupted,
    /// Nobody reads any more, or the terminal fails.
    Output(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(cause: io::Error) -> Self {
        Self::Output(cause)
    }
}

/// Tells the story: 0 if all of it came as expected, 1 if not or if nothing was decided, 3 if it could not begin.
pub(super) fn run(command: &DemoCommand, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let folder = match Folder::make() {
        Ok(folder) => folder,
        Err((path, cause)) => {
            writeln!(err, "{}: {cause}", path.display())?;
            return Ok(Exit::Unreachable);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let told = runtime.block_on(async {
        tokio::select! {
            told = play(command.answer, &folder, out) => told,
            stopped = interrupted() => Err(stopped),
        }
    });
    // A read from the terminal may still wait; it is not worth waiting for.
    runtime.shutdown_background();
    drop(folder);
    match told {
        Ok(()) => Ok(Exit::Done),
        Err(Stopped::Output(cause)) => Err(cause),
        Err(Stopped::Start(problem)) => {
            writeln!(err, "the sidecar did not start: {problem}")?;
            Ok(Exit::Unreachable)
        }
        Err(Stopped::Unexpected { expected, answered }) => {
            writeln!(err, "\nThis is not what should happen.\n  expected: {expected}\n  answered: {answered}")?;
            Ok(Exit::No)
        }
        Err(Stopped::Undecided) => {
            writeln!(
                err,
                "Nothing was decided, so nothing was sent. --answer approve or --answer deny answers for you."
            )?;
            Ok(Exit::No)
        }
        Err(Stopped::TooLate) => {
            writeln!(err, "The time to decide was over before the answer came, so nothing was decided. Try again.")?;
            Ok(Exit::No)
        }
        Err(Stopped::Interrupted) => {
            writeln!(err, "\nStopped: nothing was decided.")?;
            Ok(Exit::No)
        }
    }
}

async fn play(answer: Option<Given>, folder: &Folder, out: &mut dyn Write) -> Result<(), Stopped> {
    let sidecar = sidecar::start(&folder.0).await.map_err(Stopped::Start)?;
    let told = match Story::new(&sidecar, out) {
        Ok(story) => story.tell(answer.map(|given| given == Given::Approve)).await,
        Err(problem) => Err(Stopped::Start(problem)),
    };
    sidecar.running.stop().await;
    told
}

/// Ends when the process is told to stop, so that the folder is removed then too.
async fn interrupted() -> Stopped {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Stopped::Interrupted
}

/// A new folder that only this user may enter; removed with everything in it when dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, (PathBuf, io::Error)> {
        let path = std::env::temp_dir().join(format!("countersign-demo-{}", Uuid::new_v4().simple()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(cause) => Err((path, cause)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
