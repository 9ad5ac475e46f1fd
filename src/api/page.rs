//! Query strings, and lists that come in pages (DESIGN.md, section 9: `limit` 1 to 200 and `cursor`; an answer has
//! `nextCursor` only when `limit` was asked for, so a 0.17 client sees what it always saw).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nylorun_actors::model::json::encode;
use nylorun_actors::model::shape::issue;
use nylorun_actors::ports::store::Page;

use super::limits::PAGE_ROWS;
use super::path::decode;
use super::rejection::Rejection;

/// Parameters of a request.
pub(super) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub fn of(text: &'a str) -> Self {
        Self(text)
    }

    /// The first value of a parameter; `""` when it has none.
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.0.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(key) == name).then(|| form_decode(value))
        })
    }

    /// Every value of a parameter, in order.
    pub fn all(&self, name: &str) -> Vec<Cow<'a, str>> {
        let pairs = self.0.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(|(key, _)| form_decode(key) == name).map(|(_, value)| form_decode(value)).collect()
    }

    /// `limit`, 1 to 200.
    pub fn limit(&self) -> Result<Option<usize>, Rejection> {
        let Some(text) = self.get("limit") else { return Ok(None) };
        let limit = text.parse::<i64>().ok().filter(|n| (1..=PAGE_ROWS).contains(n));
        match limit.and_then(|n| usize::try_from(n).ok()) {
            Some(limit) => Ok(Some(limit)),
            None => Err(Rejection::issues(&[issue(&["limit"], "must be a whole number from 1 to 200")])),
        }
    }
}

fn form_decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['+', '%']) {
        return Cow::Borrowed(text);
    }
    // A broken escape stands for itself, as in every browser.
    let spaced = text.replace('+', " ");
    decode(&spaced).map_or_else(|| Cow::Owned(text.to_owned()), |decoded| Cow::Owned(decoded.into_owned()))
}

/// Which page of a list ordered by id is asked for.
pub(super) struct Paging {
    after: Option<String>,
    limit: Option<usize>,
}

impl Paging {
    pub fn of(query: &Query<'_>) -> Result<Self, Rejection> {
        let limit = query.limit()?;
        let after = match query.get("cursor") {
            None => None,
            Some(_) if limit.is_none() => {
                return Err(Rejection::issues(&[issue(&["cursor"], "needs limit beside it")]));
            }
            Some(cursor) if cursor.is_empty() => None,
            Some(cursor) => Some(id_of(&cursor).ok_or_else(|| Rejection::bad("invalid cursor"))?),
        };
        Ok(Self { after, limit })
    }

    /// What to read: one row more than is shown, to know whether there are more.
    pub fn page(&self) -> Page {
        Page { after: self.after.clone(), limit: self.limit.map(|limit| limit + 1) }
    }

    /// Takes the page out of a list that was read whole, in its order.
    pub fn select<T>(&self, rows: &mut Vec<T>, id: impl Fn(&T) -> &str) {
        if let Some(after) = &self.after {
            rows.retain(|row| id(row) > after.as_str());
        }
        if let Some(limit) = self.limit {
            rows.truncate(limit + 1);
        }
    }

    /// Cuts what was read down to the page and answers the last member of the body: nothing, or `,"nextCursor":…`.
    pub fn finish<T>(&self, rows: &mut Vec<T>, id: impl Fn(&T) -> &str) -> String {
        let Some(limit) = self.limit else { return String::new() };
        let more = rows.len() > limit;
        rows.truncate(limit);
        match rows.last() {
            Some(last) if more => format!(r#","nextCursor":{}"#, encode(&cursor_of(id(last)))),
            _ => r#","nextCursor":null"#.to_owned(),
        }
    }
}

fn cursor_of(id: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("after:{id}"))
}

fn id_of(cursor: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    text.strip_prefix("after:").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paged(query: &str, ids: &[&str]) -> (Vec<String>, String) {
        let paging = Paging::of(&Query::of(query)).unwrap_or_else(|_| panic!("{query}"));
        let mut rows: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        paging.select(&mut rows, |row| row);
        let tail = paging.finish(&mut rows, |row| row);
        (rows, tail)
    }

    #[test]
    fn pages_walk_a_whole_list_without_gap_or_repeat() {
        let ids = ["a", "b", "c", "d", "e"];
        let (mut seen, mut query) = (Vec::new(), "limit=2".to_owned());
        for _ in 0..9 {
            let (rows, tail) = paged(&query, &ids);
            seen.extend(rows);
            match tail.strip_prefix(r#","nextCursor":""#).and_then(|t| t.strip_suffix('"')) {
                Some(cursor) => query = format!("limit=2&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(seen, ids);
        assert_eq!(paged("limit=5", &ids).1, r#","nextCursor":null"#);
    }

    #[test]
    fn without_a_limit_the_list_is_whole_and_has_no_cursor() {
        assert_eq!(paged("", &["a", "b"]), (vec!["a".to_owned(), "b".to_owned()], String::new()));
    }

    #[test]
    fn a_bad_limit_or_cursor_is_a_400() {
        for bad in [
            "limit=0",
            "limit=201",
            "limit=x",
            "limit=",
            "limit=1&cursor=!!",
            "limit=1&cursor=YQ",
            "cursor=a",
        ] {
            assert_eq!(Paging::of(&Query::of(bad)).err().expect(bad).status(), 400, "{bad}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_the_first_one_counts() {
        let query = Query::of("a=1&b=x+y%2Fz&a=2&c&d=%zz+");
        assert_eq!(query.get("a").as_deref(), Some("1"));
        assert_eq!(query.all("a"), ["1", "2"]);
        assert!(query.all("e").is_empty());
        assert_eq!(query.get("b").as_deref(), Some("x y/z"));
        assert_eq!(query.get("c").as_deref(), Some(""));
        assert_eq!(query.get("d").as_deref(), Some("%zz+"));
        assert_eq!(query.get("e"), None);
        assert_eq!(query.all("a"), ["1", "2"]);
    }
}
