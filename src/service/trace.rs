//! `traceparent` (W3C Trace Context): the caller's trace, on every log line that is written on behalf of its call. A header
//! that is not exactly one of that form is ignored, as the specification asks; nothing is answered or decided by it.

use tonic::codegen::http::HeaderMap;
use tracing::Span;

/// A trace that a caller is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TraceParent<'h> {
    /// 32 lower-case hexadecimal digits, not all of them 0.
    trace_id: &'h str,
    /// The caller's span: 16 lower-case hexadecimal digits, not all of them 0.
    parent_id: &'h str,
}

impl<'h> TraceParent<'h> {
    /// Reads `version-trace_id-parent_id-flags`. A version above 00 may have more behind it, after one more dash.
    fn parse(text: &'h str) -> Option<Self> {
        let (version, rest) = hex(text, 2)?;
        let (trace_id, rest) = hex(rest.strip_prefix('-')?, 32)?;
        let (parent_id, rest) = hex(rest.strip_prefix('-')?, 16)?;
        let (_flags, rest) = hex(rest.strip_prefix('-')?, 2)?;
        let ends_well = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        let given = |id: &str| id.bytes().any(|digit| digit != b'0');
        (version != "ff" && ends_well && given(trace_id) && given(parent_id)).then_some(Self { trace_id, parent_id })
    }

    /// The one of these headers, if there is exactly one and it can be read.
    fn of(headers: &'h HeaderMap) -> Option<Self> {
        let mut all = headers.get_all("traceparent").iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        Self::parse(only.to_str().ok()?)
    }
}

/// The first so many characters, if they are lower-case hexadecimal digits, and the rest.
fn hex(text: &str, digits: usize) -> Option<(&str, &str)> {
    let (first, rest) = text.split_at_checked(digits)?;
    let all = first.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    all.then_some((first, rest))
}

/// What log lines of a call with these headers are written in; nothing, and at no cost, where there is no trace. It has the
/// level of an error, so that it is there whichever lines are written.
pub(super) fn span(headers: &HeaderMap) -> Span {
    match TraceParent::of(headers) {
        Some(TraceParent { trace_id, parent_id }) => {
            tracing::error_span!("call", trace_id, parent_span_id = parent_id)
        }
        None => Span::none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Arc, Mutex};
    use tonic::codegen::http::HeaderValue;
    use tracing::Instrument as _;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    fn read(text: &str) -> Option<(&str, &str)> {
        TraceParent::parse(text).map(|parent| (parent.trace_id, parent.parent_id))
    }

    #[test]
    fn a_trace_is_read_whatever_its_flags_and_from_versions_to_come() {
        for (version, rest) in
            [("00", "-01"), ("00", "-00"), ("00", "-03"), ("00", "-ff"), ("01", "-01"), ("fe", "-01-x")]
        {
            let text = format!("{version}-{TRACE}-{PARENT}{rest}");
            assert_eq!(read(&text), Some((TRACE, PARENT)), "{text}");
        }
        assert!(read(&format!("cc-{TRACE}-{PARENT}-01-what the future may bring")).is_some());
    }

    #[test]
    fn what_is_not_exactly_of_that_form_is_no_trace() {
        let zeros = "0".repeat(32);
        let upper = TRACE.to_uppercase();
        for text in [
            "",
            "-",
            "00",
            "00-",
            "---",
            &format!("00-{TRACE}-{PARENT}"),
            &format!("00-{TRACE}-{PARENT}-"),
            &format!("00-{TRACE}-{PARENT}-1"),
            &format!("00-{TRACE}-{PARENT}-0g"),
            &format!("00-{TRACE}-{PARENT}-01-"),
            &format!("00-{TRACE}-{PARENT}-01-more"),
            &format!("00-{TRACE}-{PARENT}-01 "),
            &format!(" 00-{TRACE}-{PARENT}-01"),
            &format!("01-{TRACE}-{PARENT}-01."),
            &format!("01-{TRACE}-{PARENT}-011"),
            &format!("ff-{TRACE}-{PARENT}-01"),
            &format!("0-{TRACE}-{PARENT}-01"),
            &format!("000-{TRACE}-{PARENT}-01"),
            &format!("FE-{TRACE}-{PARENT}-01"),
            &format!("00-{upper}-{PARENT}-01"),
            &format!("00-{zeros}-{PARENT}-01"),
            &format!("00-{TRACE}-{}-01", &zeros[..16]),
            &format!("00-{}-{PARENT}-01", &TRACE[1..]),
            &format!("00-{TRACE}0-{PARENT}-01"),
            &format!("00-{TRACE}-{}-01", &PARENT[1..]),
            &format!("00_{TRACE}_{PARENT}_01"),
            &format!("00-{TRACE}-{PARENT}\u{2010}01"),
            &format!("00-{}\u{e9}-{PARENT}-01", &TRACE[2..]),
            &format!("00-{}\"}}-{PARENT}-01", &TRACE[2..]),
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn two_headers_or_one_that_is_no_text_are_no_trace() {
        let good = HeaderValue::from_str(&format!("00-{TRACE}-{PARENT}-01")).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(TraceParent::of(&headers), None);
        headers.append("traceparent", good.clone());
        assert!(TraceParent::of(&headers).is_some());
        headers.append("traceparent", good);
        assert_eq!(TraceParent::of(&headers), None);
        headers.clear();
        headers.append("traceparent", HeaderValue::from_bytes(b"00-\xff\xfe").unwrap());
        assert_eq!(TraceParent::of(&headers), None);
    }

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_goes_on_after_the_client_has_gone_is_still_in_its_trace() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().json().with_max_level(tracing::Level::ERROR);
        let _log = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
        let mut headers = HeaderMap::new();
        headers.append("traceparent", HeaderValue::from_str(&format!("00-{TRACE}-{PARENT}-01")).unwrap());
        for headers in [headers, HeaderMap::new()] {
            let change = async {
                tracing::error!("within");
                Ok(())
            };
            crate::service::to_the_end(change).instrument(span(&headers)).await.unwrap();
        }
        let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains(TRACE) && lines[0].contains(PARENT), "{lines:?}");
        assert!(!lines[1].contains("trace_id"), "{lines:?}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_is_none(text in "\\PC*") {
            prop_assert_eq!(TraceParent::parse(&text), None);
        }

        #[test]
        fn what_is_read_is_what_was_sent(version in "[0-9a-e][0-9a-f]", flags in "[0-9a-f]{2}", cut in 0_usize..56) {
            let text = format!("{version}-{TRACE}-{PARENT}-{flags}");
            prop_assert_eq!(read(&text), Some((TRACE, PARENT)));
            if cut < text.len() {
                prop_assert_eq!(read(&text[..cut]), None);
            }
        }
    }
}
