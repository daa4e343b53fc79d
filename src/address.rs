//! Where doors are: an address and a port, or the file of a Unix socket, written `unix:/run/countersign.sock`.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What the system keeps of a socket's path, without the zero byte at its end.
const PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
const UNIX: &str = "unix:";

/// Where doors are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The socket's file, if `text` begins as only a Unix socket's address does. A path that is not absolute is left so.
    ///
    /// # Errors
    /// No file can be meant by it; what is wrong, without the text.
    pub fn unix(text: &str) -> Option<Result<Self, String>> {
        let abstract_name = text.starts_with("unix-abstract:");
        let path = if abstract_name { Some("@") } else { text.strip_prefix(UNIX) };
        path.map(|path| socket_file(path).map(Self::Unix))
    }

    /// The address and port, where there are any.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The same, a path that is not absolute taken from `folder` on.
    pub fn within(self, folder: &Path) -> Self {
        match self {
            Self::Tcp(address) => Self::Tcp(address),
            Self::Unix(path) => Self::Unix(folder.join(path)),
        }
    }

    /// Whether the system can take it: a socket's path is short.
    ///
    /// # Errors
    /// It is too long; how long it is and may be.
    pub fn fits(&self) -> Result<(), String> {
        match self {
            Self::Unix(path) if path.as_os_str().len() > PATH_BYTES => {
                let bytes = path.as_os_str().len();
                Err(format!("a socket's path may have {PATH_BYTES} bytes, and {} has {bytes}", path.display()))
            }
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for Address {
    type Err = String;

    /// Reads an address; what is wrong with it comes without the text.
    fn from_str(text: &str) -> Result<Self, String> {
        match Self::unix(text) {
            Some(unix) => unix,
            None => text.parse().map(Self::Tcp).map_err(|_| "is no address and port".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "{UNIX}{}", path.display()),
        }
    }
}

/// What follows `unix:`. Three slashes are one, as in other gRPC programs.
fn socket_file(text: &str) -> Result<PathBuf, String> {
    if text.starts_with(['@', '\0']) {
        return Err("names no file: a socket in the abstract namespace is open to everybody on the machine".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("has a control character".to_owned());
    }
    let path = match text.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => return Err("is `unix:/PATH`, `unix:PATH` or `unix:///PATH`".to_owned()),
        None => text,
    };
    // What ends in a slash or in dots is a folder.
    let last = path.rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") { Err("names no file".to_owned()) } else { Ok(PathBuf::from(path)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Result<Address, String> {
        Ok(Address::Unix(PathBuf::from(path)))
    }

    #[test]
    fn an_address_is_a_port_or_a_file() {
        assert_eq!("127.0.0.1:7400".parse(), Ok(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 7400)))));
        assert_eq!("unix:/run/a b/%41é.sock".parse(), unix("/run/a b/%41é.sock"));
        assert_eq!("unix:///run/x".parse(), unix("/run/x"));
        assert_eq!("unix:x/y.sock".parse(), unix("x/y.sock"));
        assert_eq!("unix:./@x".parse(), unix("./@x"));
        for text in ["127.0.0.1:7400", "[::1]:1", "unix:/run/x", "unix:x"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_file_is_refused() {
        for text in [
            "",
            "unix",
            "localhost:1",
            "/run/x",
            "UNIX:/run/x",
            "unix:",
            "unix:/",
            "unix:/run/",
            "unix:/run/..",
            "unix:.",
            "unix://run/x",
            "unix://",
            "unix:///",
            "unix:@x",
            "unix:\0x",
            "unix:/x\0y",
            "unix:/x\ny",
            "unix-abstract:x",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
        for text in ["unix:@x", "unix:\0x", "unix-abstract:x"] {
            assert!(text.parse::<Address>().unwrap_err().contains("abstract namespace"), "{text:?}");
        }
    }

    #[test]
    fn a_path_is_as_long_as_the_system_takes() {
        let path = |bytes: usize| Address::Unix(PathBuf::from("x".repeat(bytes)));
        assert_eq!(path(PATH_BYTES).fits(), Ok(()));
        assert!(path(PATH_BYTES + 1).fits().unwrap_err().contains(&format!("may have {PATH_BYTES} bytes")));
        assert!(path(1).within(Path::new(&"y".repeat(PATH_BYTES))).fits().is_err(), "the whole path counts");
    }
}
