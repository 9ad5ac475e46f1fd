//! The harness tokens (spec: harness-api, section 2.2). Two may be valid at once, so that a token is replaced without a
//! moment in which some harness has the wrong one: set both, move the harnesses over, take the old one out.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Fewest hexadecimal digits of a token.
const DIGITS: usize = 64;

/// The tokens that open the listener. Only their hashes are kept.
#[derive(Clone)]
pub struct HarnessTokens(Vec<[u8; 32]>);

/// Why tokens are refused. Never repeats them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// One is too short or not hexadecimal.
    #[error("a harness token has 64 hexadecimal digits or more")]
    Malformed,
    /// None, or more than two.
    #[error("one token, or the current and the previous one with a comma between them")]
    Count,
}

impl fmt::Debug for HarnessTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HarnessTokens({})", self.0.len())
    }
}

impl FromStr for HarnessTokens {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let tokens: Vec<&str> = text.split(',').map(str::trim).filter(|token| !token.is_empty()).collect();
        if tokens.is_empty() || tokens.len() > 2 {
            return Err(TokenError::Count);
        }
        if tokens.iter().any(|t| t.len() < DIGITS || !t.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err(TokenError::Malformed);
        }
        Ok(Self(tokens.iter().map(|token| Sha256::digest(token.as_bytes()).into()).collect()))
    }
}

impl HarnessTokens {
    /// Whether a token is one of them. Takes the same time for every token of one length.
    #[must_use]
    pub fn accept(&self, token: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.0.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&given)).into()
    }
}

/// The token of an `Authorization` header: the scheme in any case, one run of characters that are no space.
#[must_use]
pub fn bearer(header: &str) -> Option<&str> {
    let mut words = header.split_whitespace();
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && words.next().is_none()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn the_current_and_the_previous_token_are_accepted_and_no_other() {
        let tokens: HarnessTokens = format!("{}, {}", token('a'), token('b')).parse().expect("two");
        assert!(tokens.accept(&token('a')) && tokens.accept(&token('b')));
        for other in ["", "a", &token('c'), &token('A'), &format!("{}0", token('a'))] {
            assert!(!tokens.accept(other), "{other}");
        }
        let one: HarnessTokens = token('b').parse().expect("one");
        assert!(one.accept(&token('b')) && !one.accept(&token('a')));
    }

    #[test]
    fn a_token_that_is_short_or_not_hexadecimal_is_refused_without_being_repeated() {
        for (text, error) in [
            (String::new(), TokenError::Count),
            (" , ".to_owned(), TokenError::Count),
            (format!("{0},{0},{0}", token('a')), TokenError::Count),
            ("a".repeat(63), TokenError::Malformed),
            ("g".repeat(64), TokenError::Malformed),
            (format!("{},short", token('a')), TokenError::Malformed),
        ] {
            assert_eq!(text.parse::<HarnessTokens>().expect_err(&text), error, "{text}");
        }
        let tokens: HarnessTokens = token('a').parse().expect("one");
        assert_eq!(format!("{tokens:?}"), "HarnessTokens(1)");
    }

    #[test]
    fn a_bearer_is_one_word_after_its_scheme() {
        for good in ["Bearer abc", "bearer abc", "BEARER   abc", "  Bearer abc  ", "Bearer\tabc"] {
            assert_eq!(bearer(good), Some("abc"), "{good}");
        }
        for bad in ["", "Bearer", "Bearer ", "abc", "Basic abc", "Bearer a b", "Bearerabc"] {
            assert_eq!(bearer(bad), None, "{bad}");
        }
    }
}
