//! Instants as integer microseconds since the Unix epoch, and their wire form (ISO 8601 UTC with milliseconds).

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    /// This instant plus `ms` milliseconds (saturating).
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Milliseconds from `earlier` to this instant, never below zero.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> i64 {
        (self.0.saturating_sub(earlier.0) / 1000).max(0)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// `YYYY-MM-DDTHH:MM:SS.mmmZ`, as every instant looks on the wire.
    #[must_use]
    pub fn to_iso(self) -> String {
        let ms = self.millis();
        let days = ms.div_euclid(86_400_000);
        let in_day = ms.rem_euclid(86_400_000);
        let (y, m, d) = civil_from_days(days);
        let (h, mi, s, frac) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1000 % 60, in_day % 1000);
        format!("{y:04}-{m:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{frac:03}Z")
    }

    /// Reads what [`Micros::to_iso`] writes.
    #[must_use]
    pub fn from_iso(text: &str) -> Option<Self> {
        let form = text.len() == 24
            && text.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                10 => byte == b'T',
                13 | 16 => byte == b':',
                19 => byte == b'.',
                23 => byte == b'Z',
                _ => byte.is_ascii_digit(),
            });
        if !form {
            return None;
        }
        let number =
            |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<i64>().ok());
        let days = days_from_civil(number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let in_day = (number(11, 13)? * 60 + number(14, 16)?) * 60 + number(17, 19)?;
        Some(Self(((days * 86_400 + in_day) * 1000 + number(20, 23)?) * 1000))
    }
}

/// The day number of a Gregorian date: the way back of [`civil_from_days`].
fn days_from_civil(y: i64, m: i64, d: i64) -> i64 {
    let y = y - i64::from(m <= 2);
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let doy = (153 * ((m + 9) % 12) + 2) / 5 + d - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

/// Gregorian date of a day number counted from 1970-01-01 (the usual era arithmetic: 400-year cycles from March).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::Micros;

    #[test]
    fn instants_print_as_iso_utc_with_milliseconds() {
        assert_eq!(Micros(0).to_iso(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Micros(951_782_400_123_456).to_iso(), "2000-02-29T00:00:00.123Z");
        assert_eq!(Micros(1_735_689_599_999_000).to_iso(), "2024-12-31T23:59:59.999Z");
        assert_eq!(Micros(-1).to_iso(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn an_instant_is_read_as_it_was_written_and_nothing_else_is() {
        for ms in [0, 951_782_400_123, 1_735_689_599_999, -1, 4_107_542_399_000, 1_709_164_800_000] {
            let instant = Micros(ms * 1000);
            assert_eq!(Micros::from_iso(&instant.to_iso()), Some(instant), "{}", instant.to_iso());
        }
        for other in
            ["", "2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000+", "é026-01-01T00:00:00.00Z"]
        {
            assert_eq!(Micros::from_iso(other), None, "{other}");
        }
    }
}
