//! What an expression may cost. None of this is configurable: whoever needs more needs another rule.

/// Bytes of one expression. A person has to be able to read it.
pub const MAX_SOURCE_BYTES: usize = 4 * 1024;

/// Tokens of one expression, counted before the parser sees the text.
pub const MAX_TOKENS: usize = 2_048;

/// Brackets of any kind within each other, counted before the parser sees the text: the parser's stack grows with them.
pub const MAX_BRACKETS: usize = 32;

/// Nodes of the checked expression. An allow-list of some hundred entries fits.
pub const MAX_NODES: usize = 1_024;

/// Levels of the checked expression. Evaluation recurses, on the stack of whoever asks.
pub const MAX_DEPTH: usize = 64;

/// Elements of a list, or members of a map, that a comprehension goes through, and of a list that an expression builds.
pub const MAX_ELEMENTS: usize = 1_000;

/// Bytes of a string that an expression builds: as much as the arguments may have altogether.
pub const MAX_BUILT_BYTES: usize = 256 * 1024;

/// Steps of all expressions of one call together, so that its cost does not grow with the number of rules: one for each node evaluated and each pair of values compared within a list or map, each two
/// elements searched, each 32 members searched, each 32 bytes of text looked at or copied, each 16 bytes given to a
/// regular expression (more where it has no small automaton). Altogether some 10 to 20 ms at the very worst.
pub const MAX_STEPS: u64 = 250_000;

/// Bytes of a compiled regular expression.
pub const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Bytes of the deterministic automaton that a regular expression becomes where it fits.
pub const MAX_AUTOMATON_BYTES: usize = 1024 * 1024;

/// Bytes that making that automaton may take: the time that a load may spend on one pattern grows with it.
pub const MAX_AUTOMATON_BUILD_BYTES: usize = 2 * 1024 * 1024;

/// Groups of a regular expression within each other.
pub const MAX_PATTERN_NESTING: u32 = 32;

/// Stack of the thread that parses. Only what is touched is ever taken from the machine.
pub const PARSER_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Calls of the parser within each other, as the parser itself counts them.
pub const MAX_PARSER_DEPTH: u16 = 96;
