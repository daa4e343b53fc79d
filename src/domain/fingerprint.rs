//! stand-in
use std::fmt;
macro_rules! digest {
    ($name:ident, $prefix:literal) => {
        /// x
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name([u8; 32]);
        impl $name {
            /// x
            pub fn from_bytes(b: [u8; 32]) -> Self {
                Self(b)
            }
            /// x
            pub fn parse(t: &str) -> Option<Self> {
                let hex = t.strip_prefix($prefix)?;
                if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
                    return None;
                }
                let mut out = [0; 32];
                for (i, o) in out.iter_mut().enumerate() {
                    *o = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
                }
                Some(Self(out))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    };
}
digest!(Fingerprint, "v1:");
digest!(DefinitionDigest, "td1:");
digest!(ArgumentsDigest, "");
