//! What may hold a password, and so is shown nowhere.

use std::ffi::OsString;
use std::fmt;
use zeroize::Zeroizing;

/// A text of the environment or of a flag that may hold a password. It has no `Debug` of its content, and its memory is
/// cleared.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(Option<Zeroizing<String>>);

impl Hidden {
    /// The text; none if it is no UTF-8.
    pub(super) fn text(&self) -> Option<&Zeroizing<String>> {
        self.0.as_ref()
    }
}

impl From<OsString> for Hidden {
    fn from(text: OsString) -> Self {
        Self(text.into_string().ok().map(Zeroizing::new))
    }
}

impl From<&str> for Hidden {
    fn from(text: &str) -> Self {
        Self(Some(Zeroizing::new(text.to_owned())))
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hidden(..)")
    }
}
