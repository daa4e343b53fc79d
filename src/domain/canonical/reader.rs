//! The one pass: parse, check, sort, write.
//!
//! The reader goes down at most [`MAX_DEPTH`] levels, so its recursion is bounded. Each object's members are written in
//! the order in which they come; only an object that turns out to be out of order is rewritten, from its own text.

use std::cmp::Ordering;

use super::number::{MAX_PLAIN_DIGITS, write_decimal};
use super::refusal::Step;
use super::string::{Unescaped, compare_escaped_names, compare_names, plain_run, push_escaped};
use super::{MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT, Problem, Refusal, Top};

/// How many digits and how large an exponent a number may be written with.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberLimits {
    digits: usize,
    exponent: u32,
}

impl NumberLimits {
    /// For texts from outside.
    pub(super) const HANDED_OVER: Self = Self { digits: MAX_DIGITS, exponent: MAX_EXPONENT };

    /// For texts that we wrote: the exponent can be larger by [`MAX_DIGITS`], and up to six zeros be added in front.
    pub(super) const STORED: Self = Self { digits: MAX_DIGITS + 32, exponent: 1200 };
}

pub(super) struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    limits: NumberLimits,
    out: String,
    /// The members of all objects that are open, the innermost one's last.
    members: Vec<Member>,
    /// Where an object is put together again, in order.
    scratch: String,
    /// The way up from a problem.
    trail: Vec<Step>,
}

/// A member as it stands in the output, by offsets; and where it came from in the text.
#[derive(Debug, Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
    /// Its name is written without escapes.
    plain: bool,
    source: usize,
}

/// A problem on its way up, before the path to it is known.
struct Fault {
    problem: Problem,
    offset: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str, limits: NumberLimits) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            limits,
            out: String::with_capacity(text.len()),
            members: Vec::new(),
            scratch: String::new(),
            trail: Vec::new(),
        }
    }

    /// Reads the whole text and gives it back in canonical form.
    pub(super) fn read(mut self, top: Top) -> Result<String, Refusal> {
        match self.document(top) {
            Ok(()) => Ok(self.out),
            Err(fault) => Err(Refusal::at_path(fault.problem, fault.offset, &self.trail)),
        }
    }

    fn document(&mut self, top: Top) -> Result<(), Fault> {
        if self.text.starts_with('\u{FEFF}') {
            return Err(self.fault(Problem::ByteOrderMark));
        }
        self.skip_white_space();
        if top == Top::Object && matches!(self.peek(), Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n')) {
            return Err(self.fault(Problem::NotAnObject));
        }
        self.value(0)?;
        self.skip_white_space();
        if self.at < self.bytes.len() {
            return Err(self.fault(Problem::TrailingText));
        }
        Ok(())
    }

    /// Reads one value that stands inside `depth` objects and arrays.
    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.unexpected()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Fault> {
        self.open(depth, '{')?;
        if self.take(b'}') {
            self.out.push('}');
            return Ok(());
        }
        let first = self.members.len();
        let mut in_order = true;
        loop {
            let member = self.member(depth)?;
            if let Some(previous) = self.members.get(first..).and_then(<[_]>::last) {
                in_order &= order(&self.out, previous, &member) == Ordering::Less;
            }
            self.members.push(member);
            self.skip_white_space();
            if self.take(b'}') {
                break;
            }
            self.need(b',')?;
            self.out.push(',');
            self.skip_white_space();
        }
        if !in_order {
            self.sort(first)?;
        }
        self.members.truncate(first);
        self.out.push('}');
        Ok(())
    }

    fn member(&mut self, depth: usize) -> Result<Member, Fault> {
        let source = self.at;
        let start = self.out.len();
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        let plain = self.string()?;
        let name_end = self.out.len();
        self.skip_white_space();
        self.need(b':')?;
        self.out.push(':');
        self.skip_white_space();
        let mut member = Member { start, name_end, end: name_end, plain, source };
        self.value(depth).inspect_err(|_| self.trail.push(name_step(&self.out, &member)))?;
        member.end = self.out.len();
        Ok(member)
    }

    fn array(&mut self, depth: usize) -> Result<(), Fault> {
        self.open(depth, '[')?;
        if self.take(b']') {
            self.out.push(']');
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.value(depth).inspect_err(|_| self.trail.push(Step::Index(index)))?;
            index += 1;
            self.skip_white_space();
            if self.take(b']') {
                break;
            }
            self.need(b',')?;
            self.out.push(',');
            self.skip_white_space();
        }
        self.out.push(']');
        Ok(())
    }

    /// Puts the members from `first` on into order; two equal names stand side by side then.
    fn sort(&mut self, first: usize) -> Result<(), Fault> {
        let members = self.members.get_mut(first..).unwrap_or_default();
        let Some(start) = members.first().map(|member| member.start) else { return Ok(()) };
        members
            .sort_unstable_by(|left, right| order(&self.out, left, right).then_with(|| left.source.cmp(&right.source)));
        let twins = members.array_windows().find(|[left, right]| order(&self.out, left, right) == Ordering::Equal);
        if let Some([_, second]) = twins {
            self.trail.push(name_step(&self.out, second));
            return Err(Fault { problem: Problem::DuplicateMember, offset: second.source });
        }
        self.scratch.clear();
        for member in members {
            if !self.scratch.is_empty() {
                self.scratch.push(',');
            }
            self.scratch.push_str(self.out.get(member.start..member.end).unwrap_or_default());
        }
        self.out.truncate(start);
        self.out.push_str(&self.scratch);
        Ok(())
    }

    /// Copies a string; whether it is written without an escape.
    fn string(&mut self) -> Result<bool, Fault> {
        self.at += 1;
        self.out.push('"');
        let mut plain = true;
        loop {
            let start = self.at;
            self.at += plain_run(self.bytes.get(start..).unwrap_or_default());
            self.out.push_str(self.text.get(start..self.at).unwrap_or_default());
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => plain &= self.escape()?,
                Some(_) => return Err(self.fault(Problem::ControlCharacter)),
                None => return Err(self.fault(Problem::UnexpectedEnd)),
            }
        }
        self.at += 1;
        self.out.push('"');
        Ok(plain)
    }

    /// Reads an escape and writes what it stands for; whether that needs no escape.
    fn escape(&mut self) -> Result<bool, Fault> {
        let start = self.at;
        let Some(kind) = self.bytes.get(start + 1) else {
            self.at = self.bytes.len();
            return Err(self.fault(Problem::UnexpectedEnd));
        };
        self.at += 2;
        let character = match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode_escape(start)?,
            _ => return Err(Fault { problem: Problem::InvalidEscape, offset: start }),
        };
        push_escaped(character, &mut self.out);
        Ok(!matches!(character, '"' | '\\' | '\0'..='\u{1F}'))
    }

    /// Reads what follows `\u`: four digits, and the second half of the pair where they are the first.
    fn unicode_escape(&mut self, start: usize) -> Result<char, Fault> {
        let unpaired = Fault { problem: Problem::UnpairedSurrogate, offset: start };
        let high = self.four_digits(start)?;
        let code = if (0xD800..0xDC00).contains(&high) {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            if !rest.starts_with(b"\\u") {
                let ended = b"\\u".starts_with(rest);
                self.at += rest.len();
                return Err(if ended { self.fault(Problem::UnexpectedEnd) } else { unpaired });
            }
            let second = self.at;
            self.at += 2;
            let low = self.four_digits(second)?;
            if !(0xDC00..0xE000).contains(&low) {
                return Err(unpaired);
            }
            0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)
        } else {
            high
        };
        char::from_u32(code).ok_or(unpaired)
    }

    fn four_digits(&mut self, start: usize) -> Result<u32, Fault> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(byte) = self.peek() else { return Err(self.fault(Problem::UnexpectedEnd)) };
            let digit = char::from(byte).to_digit(16);
            code = code * 16 + digit.ok_or(Fault { problem: Problem::InvalidEscape, offset: start })?;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let negative = self.take(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(Fault { problem: Problem::InvalidNumber, offset: start });
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) && whole.len() <= MAX_PLAIN_DIGITS && whole != "0" {
            // As it stands; most numbers are of this kind.
            self.out.push_str(self.text.get(start..self.at).unwrap_or_default());
            return Ok(());
        }
        let fraction = if self.take(b'.') { self.digits()? } else { "" };
        if whole.len() + fraction.len() > self.limits.digits {
            return Err(Fault { problem: Problem::TooManyDigits, offset: start });
        }
        let exponent = if self.take(b'e') || self.take(b'E') { self.exponent(start)? } else { 0 };
        write_decimal(negative, whole, fraction, exponent, &mut self.out);
        Ok(())
    }

    /// Reads what follows the `e` of the number that starts at `start`.
    fn exponent(&mut self, start: usize) -> Result<i64, Fault> {
        let negative = self.take(b'-');
        if !negative {
            self.take(b'+');
        }
        let digits = self.digits()?;
        if digits.len() > self.limits.digits {
            return Err(Fault { problem: Problem::TooManyDigits, offset: start });
        }
        let significant = digits.trim_start_matches('0');
        let size = if significant.is_empty() { Ok(0) } else { significant.parse::<u32>() };
        // What does not fit into 32 bits is beyond the limit all the more.
        let size = size.ok().filter(|size| *size <= self.limits.exponent);
        let size = i64::from(size.ok_or(Fault { problem: Problem::ExponentOutOfRange, offset: start })?);
        Ok(if negative { -size } else { size })
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<&'t str, Fault> {
        let start = self.at;
        let rest = self.bytes.get(start..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match self.text.get(start..self.at) {
            Some(digits) if !digits.is_empty() => Ok(digits),
            _ if self.peek().is_none() => Err(self.fault(Problem::UnexpectedEnd)),
            _ => Err(self.fault(Problem::InvalidNumber)),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        for expected in word.bytes() {
            self.need(expected)?;
        }
        self.out.push_str(word);
        Ok(())
    }

    fn open(&mut self, depth: usize, bracket: char) -> Result<(), Fault> {
        if depth > MAX_DEPTH {
            return Err(self.fault(Problem::TooDeep));
        }
        self.at += 1;
        self.out.push(bracket);
        self.skip_white_space();
        Ok(())
    }

    fn skip_white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, byte: u8) -> Result<(), Fault> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> Fault {
        let ended = self.at >= self.bytes.len();
        self.fault(if ended { Problem::UnexpectedEnd } else { Problem::UnexpectedCharacter })
    }

    fn fault(&self, problem: Problem) -> Fault {
        Fault { problem, offset: self.at }
    }
}

/// The order of two members, by their names in the output.
fn order(out: &str, left: &Member, right: &Member) -> Ordering {
    let compare = if left.plain && right.plain { compare_names } else { compare_escaped_names };
    compare(inside(out, left), inside(out, right))
}

fn name_step(out: &str, member: &Member) -> Step {
    Step::Name(Unescaped::new(inside(out, member)).collect())
}

/// A member's name as it is written, without the quotes.
fn inside<'o>(out: &'o str, member: &Member) -> &'o str {
    out.get(member.start + 1..member.name_end - 1).unwrap_or_default()
}
