//! The doors' Unix socket: who may connect is its file's mode. Nothing is ever replaced but a socket on which nobody answers,
//! and nothing is removed but what was made here.

use std::fs::{self, File, Metadata, Permissions, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// How long another sidecar's start in the same folder is waited for; it takes no time at all.
const FOLDER_LOCK: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What is where a socket is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A socket on which nobody answers: what a process that was killed leaves.
    Stale,
    /// A socket on which somebody answers, or may.
    Answering,
    /// Something that is no socket.
    Other,
}

/// Looks at what is at `path`, by connecting where it is a socket.
///
/// # Errors
/// The system does not tell.
pub async fn look(path: &Path) -> Result<Found> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Ok(Found::Other),
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(cause) => return Err(cause),
    }
    match UnixStream::connect(path).await {
        // A full queue is somebody's too.
        Ok(_) => Ok(Found::Answering),
        Err(cause) if cause.kind() == ErrorKind::WouldBlock => Ok(Found::Answering),
        Err(cause) if cause.kind() == ErrorKind::ConnectionRefused => Ok(Found::Stale),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(cause) => Err(cause),
    }
}

/// What is hardly meant about a socket at `path` with this mode, one line each.
pub fn doubts(path: &Path, mode: u32) -> Vec<String> {
    let mut doubts = Vec::new();
    if mode & 0o002 != 0 {
        doubts.push(format!("{}: everybody on this machine may connect (mode {mode:04o})", path.display()));
    }
    let folder = folder_of(path);
    if fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o002 != 0) {
        let what = "everybody on this machine may write in that folder, and can put a socket of their own there, which \
                    callers would send their tokens to";
        doubts.push(format!("{}: {what}", folder.display()));
    }
    doubts
}

/// The socket's file, removed when dropped if it is still the one that was made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn is(&self, found: &Metadata) -> bool {
        (found.dev(), found.ino()) == (self.device, self.inode)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| self.is(&found))
            && let Err(cause) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %cause, "the socket's file stays behind");
        }
    }
}

/// Listens at `path`. There is no moment in which anybody could connect whom `mode` keeps out. Two sidecars that start at
/// once settle it under a lock on the folder, so that neither takes the other's fresh socket for one left behind.
///
/// # Errors
/// Something else is there, somebody answers there, or the system refuses.
pub(super) async fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile)> {
    let _lock = lock(folder_of(path)).await?;
    match look(path).await? {
        Found::Nothing => {}
        Found::Stale => {
            fs::remove_file(path)?;
            tracing::info!(path = %path.display(), "a socket on which nobody answered was replaced");
        }
        Found::Answering => return Err(Error::new(ErrorKind::AddrInUse, "another process answers there")),
        Found::Other => return Err(Error::new(ErrorKind::AlreadyExists, "what is there is no socket, and stays")),
    }
    let socket = UnixSocket::new_stream()?;
    // On Linux the file is born with its socket's mode, less the umask. Where it is not, nobody can connect before `listen`.
    let _ = File::from(socket.as_fd().try_clone_to_owned()?).set_permissions(Permissions::from_mode(mode));
    socket.bind(path)?;
    let made = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() };
    if made.permissions().mode() & 0o777 != mode {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    let kept = fs::symlink_metadata(path)?;
    if !file.is(&kept) || kept.permissions().mode() & 0o777 != mode {
        return Err(Error::other(format!("its mode cannot be set to {mode:04o}")));
    }
    Ok((socket.listen(BACKLOG)?, file))
}

/// The folder, locked until the file is dropped.
async fn lock(folder: &Path) -> Result<File> {
    let failed = |cause: Error| Error::new(cause.kind(), format!("the folder {}: {cause}", folder.display()));
    let file = File::open(folder).map_err(failed)?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if waited < FOLDER_LOCK => {
                tokio::time::sleep(ASK_AGAIN).await;
                waited += ASK_AGAIN;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(failed(Error::new(ErrorKind::WouldBlock, "another process keeps it locked")));
            }
            Err(TryLockError::Error(cause)) => return Err(failed(cause)),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder of its own, removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("countersign-socket-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("x.sock")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// What a process leaves that was killed.
    fn left_behind(path: &Path) {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_goes_with_its_owner() {
        for wanted in [0o600, 0o660, 0o666] {
            let folder = Folder::new();
            let path = folder.socket();
            assert_eq!(look(&path).await.unwrap(), Found::Nothing);
            let (listener, file) = listen(&path, wanted).await.unwrap();
            assert_eq!((mode(&path), look(&path).await.unwrap()), (wanted, Found::Answering));
            drop((file, listener));
            assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "nothing is left");
        }
    }

    #[tokio::test]
    async fn a_socket_on_which_nobody_answers_is_replaced() {
        let folder = Folder::new();
        let path = folder.socket();
        left_behind(&path);
        assert_eq!(look(&path).await.unwrap(), Found::Stale);
        let (_listener, _file) = listen(&path, 0o600).await.unwrap();
        assert_eq!((mode(&path), look(&path).await.unwrap()), (0o600, Found::Answering));
    }

    #[tokio::test]
    async fn whoever_answers_is_left_alone_and_whoever_answers_late_too() {
        let folder = Folder::new();
        let path = folder.socket();
        let (listener, _file) = listen(&path, 0o600).await.unwrap();
        // Until its queue is full, and then some.
        let mut waiting = Vec::new();
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 10_000, "the queue is never full");
        }
        let refused = listen(&path, 0o600).await.unwrap_err();
        assert_eq!(refused.to_string(), "another process answers there");
        drop(waiting);
        while tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_ok() {}
        assert_eq!(listen(&path, 0o600).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).await.is_ok(), "it still answers");
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let folder = Folder::new();
        let (file, target) = (folder.0.join("file"), folder.0.join("target"));
        fs::write(&file, "precious").unwrap();
        left_behind(&target);
        let link = folder.0.join("link");
        symlink(&target, &link).unwrap();
        let dangling = folder.0.join("dangling");
        symlink(folder.0.join("nowhere"), &dangling).unwrap();
        let inside = folder.0.join("folder");
        fs::create_dir(&inside).unwrap();
        for path in [&file, &link, &dangling, &inside] {
            let refused = listen(path, 0o600).await.unwrap_err();
            assert!(refused.to_string().contains("no socket"), "{}: {refused}", path.display());
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
        assert!(!folder.0.join("nowhere").exists() && fs::symlink_metadata(&target).is_ok() && inside.is_dir());
        let datagrams = folder.socket();
        let _other = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
        assert!(listen(&datagrams, 0o600).await.is_err(), "a socket of another kind is somebody's");
        assert!(listen(&folder.0.join("absent/x.sock"), 0o600).await.unwrap_err().to_string().contains("absent"));
    }

    #[tokio::test]
    async fn what_has_been_replaced_is_not_removed() {
        let folder = Folder::new();
        let path = folder.socket();
        let (_listener, file) = listen(&path, 0o600).await.unwrap();
        fs::remove_file(&path).unwrap();
        let (_other, _its_file) = listen(&path, 0o600).await.unwrap();
        drop(file);
        assert_eq!(look(&path).await.unwrap(), Found::Answering, "the newer one stays");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_many_that_start_at_once_over_a_stale_socket_one_listens() {
        for _ in 0..20 {
            let folder = Folder::new();
            let path = folder.socket();
            left_behind(&path);
            let start = |path: PathBuf| tokio::spawn(async move { listen(&path, 0o600).await });
            let starting: Vec<_> = (0..8).map(|_| start(path.clone())).collect();
            let mut listening = Vec::new();
            for start in starting {
                listening.extend(start.await.unwrap());
            }
            assert_eq!(listening.len(), 1);
            assert_eq!(look(&path).await.unwrap(), Found::Answering, "and it is the one that can be found");
        }
    }

    #[test]
    fn a_place_that_everybody_can_write_to_is_doubted() {
        let folder = Folder::new();
        assert!(doubts(&folder.socket(), 0o660).is_empty());
        assert_eq!(doubts(&folder.socket(), 0o666).len(), 1);
        fs::set_permissions(&folder.0, Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(doubts(&folder.socket(), 0o600).len(), 1);
    }
}
