//! The policy: what is available at all, and what people must confirm.

pub mod expression;
