//! Catalogs made from the tool lists that MCP servers give (`tools/list`): what each tool may do by its own annotations,
//! and a digest of its definition, so that a tool that changes under an unchanged name is noticed.
//!
//! | annotations | scope | tags |
//! |---|---|---|
//! | `destructiveHint: true`, whatever else | `admin` | `createHint`, `updateHint`, `destructiveHint` |
//! | else `readOnlyHint: true` | `read` | `readOnlyHint` |
//! | else `destructiveHint: false` | `write` | `createHint`, `updateHint` |
//! | else (nothing said: MCP reads that as destructive) | `admin` | `createHint`, `updateHint`, `destructiveHint` |
//!
//! `idempotentHint` and `openWorldHint` are tags where they are `true`, in that order behind the others; their absence
//! says nothing. Annotations are the server's own word, so what comes in is `curated: false` until a person says otherwise.

mod existing;
mod merge;
mod render;
mod tools;

pub use existing::ExistingCatalog;
pub use merge::{Import, Outcome, Report, import};
pub use tools::{ImportProblem, Tool, read_tools};

#[cfg(test)]
mod tests;
