//! Where doors listen, and who may connect where that is a file.

use crate::address::Address;
use std::net::SocketAddr;
use std::path::Path;

/// Its owner, and nobody else.
const SOCKET_MODE: u32 = 0o600;
/// Connecting is writing: what a socket's mode can say, and what its owner always has.
const READ_AND_WRITE: u32 = 0o666;

/// Where the doors listen: what a flag or the environment says, a path in it taken from the working directory on; else what
/// the file says, a path in it taken from its folder on; else `default`.
pub(super) fn address(
    flag: Option<&str>,
    key: Option<&str>,
    folder: &Path,
    default: &str,
    problems: &mut Vec<String>,
) -> Address {
    let (text, folder) = match (flag, key) {
        (Some(text), _) => (text, Path::new("")),
        (None, key) => (key.unwrap_or(default), folder),
    };
    read("listen", text, folder, default, problems)
}

/// Where a door listens that has a listener of its own; a path is taken from the file's folder on.
pub(super) fn own_address(key: &str, text: &str, folder: &Path, problems: &mut Vec<String>) -> Address {
    read(key, text, folder, "127.0.0.1:7402", problems)
}

fn read(key: &str, text: &str, folder: &Path, example: &str, problems: &mut Vec<String>) -> Address {
    let read = text.parse().map(|address: Address| address.within(folder));
    read.and_then(|address| address.fits().map(|()| address)).unwrap_or_else(|problem| {
        problems.push(format!("{key}: {text:?}: {problem}; say `{example}`, or `unix:/PATH` for a Unix socket"));
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    })
}

/// The mode of the socket's file, in octal digits as for `chmod`.
pub(super) fn socket_mode(key: &str, text: Option<&str>, problems: &mut Vec<String>) -> u32 {
    let Some(text) = text else { return SOCKET_MODE };
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| digits);
    match mode {
        Some(mode) if mode & !READ_AND_WRITE == 0 && mode & SOCKET_MODE == SOCKET_MODE => mode,
        Some(_) | None => {
            problems.push(format!(
                "{key}: {text:?} is no mode of a socket from `0600` to `0666`, such as `0660` for the group too"
            ));
            SOCKET_MODE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "127.0.0.1:7400";

    fn said(flag: Option<&str>, key: Option<&str>) -> (String, Vec<String>) {
        let mut problems = Vec::new();
        let address = address(flag, key, Path::new("/etc/countersign"), TCP, &mut problems);
        (address.to_string(), problems)
    }

    #[test]
    fn a_path_of_the_file_is_taken_from_its_folder_and_a_flags_from_here() {
        for (flag, key, wanted) in [
            (None, None, TCP),
            (None, Some("unix:run/x.sock"), "unix:/etc/countersign/run/x.sock"),
            (None, Some("unix:/run/x.sock"), "unix:/run/x.sock"),
            (Some("unix:run/x.sock"), Some("unix:/other"), "unix:run/x.sock"),
            (Some("127.0.0.1:1"), Some("unix:/other"), "127.0.0.1:1"),
        ] {
            assert_eq!(said(flag, key), (wanted.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn what_cannot_be_listened_on_is_named() {
        for (text, says) in [
            ("localhost:7400", "is no address and port"),
            ("unix:@countersign", "abstract namespace"),
            ("unix-abstract:countersign", "abstract namespace"),
            ("unix:/run/", "names no file"),
            (&format!("unix:{}", "x".repeat(100)), "and /etc/countersign/xxx"),
        ] {
            let problems = said(None, Some(text)).1;
            assert_eq!(problems.len(), 1, "{text}");
            assert!(problems[0].starts_with("listen: ") && problems[0].contains(says), "{problems:?}");
        }
    }

    #[test]
    fn a_socket_has_a_mode_in_which_its_owner_can_connect() {
        let mode = |text: Option<&str>| {
            let mut problems = Vec::new();
            (socket_mode("socket_mode", text, &mut problems), problems.len())
        };
        for (text, wanted) in
            [(None, 0o600), (Some("0600"), 0o600), (Some("660"), 0o660), (Some("0620"), 0o620), (Some("0666"), 0o666)]
        {
            assert_eq!(mode(text), (wanted, 0), "{text:?}");
        }
        for wrong in ["", "0", "60", "0o660", "+660", "0770", "0060", "0400", "1600", "00660", "9660", "rw", "0660 "] {
            assert_eq!(mode(Some(wrong)), (SOCKET_MODE, 1), "{wrong:?}");
        }
    }
}
