//! A cheap look at the text before the parser gets it: the parser recurses, and a stack that overflows takes the
//! process with it.

use super::limits::{MAX_BRACKETS, MAX_SOURCE_BYTES, MAX_TOKENS};
use super::problem::{ExpressionProblem, Place};

/// Refuses what is too long, has too many tokens or brackets too deep within each other. It need not tokenise exactly
/// as the parser does: the parser has its own limit on depth and a large stack, and this bounds what reaches it.
///
/// # Errors
/// The limit that is exceeded, at its place; or that the text is empty or a string does not end.
pub(super) fn scan(source: &str) -> Result<(), ExpressionProblem> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("an expression has at most {MAX_SOURCE_BYTES} bytes, this one has {}", source.len());
        return Err(ExpressionProblem::whole(message));
    }
    let mut scanner = Scanner { source: source.as_bytes(), at: 0 };
    let (mut tokens, mut brackets) = (0_usize, 0_usize);
    while let Some((token, start)) = scanner.next() {
        let problem = |message: String| Err(ExpressionProblem::at(Place::of(source, start), message));
        tokens += 1;
        if tokens > MAX_TOKENS {
            return problem(format!("an expression has at most {MAX_TOKENS} tokens"));
        }
        match token {
            Token::Open => brackets += 1,
            Token::Close => brackets = brackets.saturating_sub(1),
            Token::Unended => return problem("this string has no end".to_owned()),
            Token::Other => {}
        }
        if brackets > MAX_BRACKETS {
            return problem(format!("brackets stand at most {MAX_BRACKETS} deep within each other"));
        }
    }
    if tokens == 0 { Err(ExpressionProblem::whole("the expression is empty")) } else { Ok(()) }
}

enum Token {
    Open,
    Close,
    Unended,
    Other,
}

struct Scanner<'a> {
    source: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    /// The next token and where it starts.
    fn next(&mut self) -> Option<(Token, usize)> {
        self.skip_space();
        let start = self.at;
        let first = self.peek(0)?;
        self.at += 1;
        let token = match first {
            b'(' | b'[' | b'{' => Token::Open,
            b')' | b']' | b'}' => Token::Close,
            b'\'' | b'"' => self.string(first, false),
            _ if is_word(first) => self.word(start),
            _ => Token::Other,
        };
        Some((token, start))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.get(self.at + ahead).copied()
    }

    fn skip_space(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c), _) => self.at += 1,
                (Some(b'/'), Some(b'/')) => {
                    while self.peek(0).is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// A name, a number or the prefix of a string.
    fn word(&mut self, start: usize) -> Token {
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        let word = self.source.get(start..self.at).unwrap_or_default();
        let is_prefix = word.len() <= 2 && word.iter().all(|byte| matches!(byte, b'r' | b'R' | b'b' | b'B'));
        match self.peek(0) {
            Some(quote @ (b'\'' | b'"')) if is_prefix => {
                self.at += 1;
                self.string(quote, word.iter().any(|byte| matches!(byte, b'r' | b'R')))
            }
            _ => Token::Other,
        }
    }

    /// A string, from after its first quote.
    fn string(&mut self, quote: u8, raw: bool) -> Token {
        let triple = self.peek(0) == Some(quote) && self.peek(1) == Some(quote);
        if triple {
            self.at += 2;
        }
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == b'\\' && !raw {
                self.at += 1;
            } else if byte == quote && !triple {
                return Token::Other;
            } else if byte == quote && self.peek(0) == Some(quote) && self.peek(1) == Some(quote) {
                self.at += 2;
                return Token::Other;
            }
        }
        Token::Unended
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &str) -> String {
        scan(source).unwrap_err().to_string()
    }

    #[test]
    fn brackets_in_strings_and_comments_do_not_count() {
        let many = "(".repeat(MAX_BRACKETS * 2);
        for source in [
            format!("args.x == '{many}'"),
            format!("args.x == \"\\\"{many}\""),
            format!("args.x == '''' ' {many}'''"),
            format!("args.x == r'\\' // {many}\n && true"),
            format!("args.x == br\"{many}\""),
        ] {
            assert_eq!(scan(&source), Ok(()), "{source}");
        }
    }

    #[test]
    fn the_bracket_that_is_too_deep_is_named() {
        let source = format!("{}1{}", "(".repeat(MAX_BRACKETS), ")".repeat(MAX_BRACKETS));
        assert_eq!(scan(&source), Ok(()));
        assert_eq!(
            message(&format!("(\n{source})")),
            "line 2, column 32: brackets stand at most 32 deep within each other"
        );
    }

    #[test]
    fn a_bracket_that_was_closed_does_not_count() {
        assert_eq!(scan(&"(a)".repeat(500)), Ok(()));
        assert_eq!(scan(&")".repeat(500)), Ok(()));
    }

    #[test]
    fn too_long_too_many_and_empty_are_refused() {
        assert_eq!(scan(&format!("'{}'", "x".repeat(MAX_SOURCE_BYTES - 2))), Ok(()));
        assert!(message(&"x".repeat(MAX_SOURCE_BYTES + 1)).contains("at most 4096 bytes, this one has 4097"));
        assert!(message(&"!".repeat(MAX_TOKENS + 1)).contains("at most 2048 tokens"));
        for source in ["", " \n\t", "// nothing", "// \n"] {
            assert_eq!(message(source), "the expression is empty");
        }
    }

    #[test]
    fn a_string_without_end_is_named_where_it_begins() {
        for source in ["a == 'b", "a == \"b'", "a == 'b\\'", "a == '''b''", "a == r'''b'"] {
            assert!(message(source).ends_with(": this string has no end"), "{source}");
        }
        assert_eq!(message("é == 'b"), "column 6: this string has no end");
    }
}
