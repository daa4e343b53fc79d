//! The interpreter of the crate whose parser is used, as a second opinion.
