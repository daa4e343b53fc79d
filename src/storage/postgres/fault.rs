//! What an error of the driver means for the operation that it came to.

use super::connecting::{code, is_broken};
use crate::storage::StoreError;

/// Why an operation did not come to its end.
#[derive(Debug)]
pub(super) enum Fault {
    /// Others were in the way: nothing was done, and doing it again may succeed.
    Again(String),
    /// The connection is of no more use. Whether it was done is not known.
    Broken(String),
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let cause = error.to_string();
        match &error {
            sqlx::Error::Database(_) => match code(&error) {
                Some(code) => Self::of(&code, format!("{cause} ({code})")),
                None => Self::Store(StoreError::Unavailable { cause }),
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Broken(cause),
            sqlx::Error::RowNotFound
            | sqlx::Error::TypeNotFound { .. }
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Encode(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::InvalidArgument(_) => Self::Store(StoreError::Inconsistent { cause }),
            _ => Self::Store(StoreError::Unavailable { cause }),
        }
    }
}

impl Fault {
    /// What the server's code means (SQLSTATE).
    fn of(code: &str, cause: String) -> Self {
        match code {
            // Serialization, deadlock, a unique index that another transaction was first in.
            "40001" | "40P01" | "23505" => Self::Again(cause),
            code if is_broken(code) => Self::Broken(cause),
            // What a constraint refuses, what the schema has not or this role may not, what cannot be, damage.
            "XX001" | "XX002" => Self::Store(StoreError::Inconsistent { cause }),
            code if ["22", "23", "42", "P0"].iter().any(|class| code.starts_with(class)) => {
                Self::Store(StoreError::Inconsistent { cause })
            }
            _ => Self::Store(StoreError::Unavailable { cause }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: &str) -> &'static str {
        match Fault::of(code, String::new()) {
            Fault::Again(_) => "again",
            Fault::Broken(_) => "broken",
            Fault::Store(StoreError::Unavailable { .. }) => "unavailable",
            Fault::Store(StoreError::Inconsistent { .. }) => "inconsistent",
            Fault::Store(StoreError::Corrupt { .. }) => "corrupt",
        }
    }

    #[test]
    fn every_code_means_what_can_be_done_about_it() {
        for (codes, meaning) in [
            (&["40001", "40P01", "23505"][..], "again"),
            (&["57P01", "57P02", "57P03", "08006", "08P01", "25006", "25P03", "26000"], "broken"),
            // A lock or the statement took too long; the disk is full; too many connections.
            (&["55P03", "57014", "53100", "53300", "58030", "XX000"], "unavailable"),
            (&["23503", "23514", "42P01", "42501", "22021", "XX001", "XX002", "P0001"], "inconsistent"),
        ] {
            for code in codes {
                assert_eq!(kind(code), meaning, "{code}");
            }
        }
    }

    #[test]
    fn an_error_of_the_socket_breaks_the_connection() {
        let broken = Fault::from(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()));
        assert!(matches!(broken, Fault::Broken(_)));
        assert!(matches!(Fault::from(sqlx::Error::Protocol(String::new())), Fault::Broken(_)));
    }

    #[test]
    fn a_row_that_is_not_as_expected_is_no_outage() {
        let missing = Fault::from(sqlx::Error::ColumnNotFound("version".to_owned()));
        assert!(matches!(missing, Fault::Store(StoreError::Inconsistent { .. })));
    }
}
