//! What the hostile get: an answer, and soon.
