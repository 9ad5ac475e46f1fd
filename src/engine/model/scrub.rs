//! Keeps secrets out of texts that people or models may read (spec: security, section 14).

use secrecy::{ExposeSecret, SecretString};

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";
/// Shorter values would shred ordinary text, so they stay.
const SHORTEST: usize = 8;

/// Replaces known secrets in texts.
#[derive(Clone, Debug, Default)]
pub struct Scrubber(Vec<SecretString>);

impl Scrubber {
    /// A scrubber for these secrets. The longest goes first, so that one secret inside another leaves no rest.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let long = |secret: &SecretString| secret.expose_secret().chars().count() >= SHORTEST;
        let mut secrets: Vec<_> = secrets.into_iter().filter(long).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose_secret().len()));
        Self(secrets)
    }

    /// The text without secrets.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.expose_secret(), REDACTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_secret_goes_first_and_short_ones_stay() {
        let scrubber = Scrubber::new(["secret-1", "secret-1-long", "short", ""].map(SecretString::from));
        assert_eq!(scrubber.scrub("a secret-1-long b secret-1 short"), "a [redacted] b [redacted] short");
    }
}
