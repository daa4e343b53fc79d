//! JSON values that keep the exact value of every number.

/// A JSON value.
#[derive(Clone, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exact.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object, with its members in canonical order.
    Object(Vec<(String, Json)>),
}

/// A number as its canonical text.
#[derive(Clone, PartialEq, Eq)]
pub struct Number(String);

impl Number {
    /// The number that this canonical text writes.
    pub fn from_canonical(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The number, where it is integral and within signed 64 bits.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The double whose RFC 8785 text is this number's canonical text, if there is one.
    pub fn as_double(&self) -> Option<f64> {
        let digits = self.0.chars().take_while(|letter| *letter != 'e').filter(char::is_ascii_digit);
        let significant = digits.collect::<String>();
        let significant = significant.trim_start_matches('0').trim_end_matches('0');
        let double = self.0.parse::<f64>().ok().filter(|double| double.is_finite())?;
        let shortest = format!("{double:e}");
        let written = shortest.split('e').next().unwrap_or_default().replace(['.', '-'], "");
        (written.trim_start_matches('0').trim_end_matches('0') == significant).then_some(double)
    }
}

/// Without what it holds: it is somebody's arguments.
impl std::fmt::Debug for Json {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Json(..)")
    }
}
