//! What this endpoint has begun and what came of it, by Action. It is why a delivery that comes again does nothing again.
//! Here it is a map in memory; a real endpoint keeps it where its effects are, in the same transaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nylorun_actors::model::json::Json;
use tokio::sync::watch;

/// Actions that are remembered at most; all finished ones are forgotten when they are that many.
const MOST: usize = 10_000;

/// How an Action stands here.
enum Entry {
    /// Somebody works on it, and calls back with the newest token.
    Working(watch::Sender<String>),
    /// It was done, with this value.
    Done(Json),
}

/// What a delivery finds.
pub enum Found {
    /// Nothing: it is the caller's to do, with the tokens of this and of later deliveries.
    New(watch::Receiver<String>),
    /// It is being done; its work has the new token now.
    Working,
    /// It was done, with this value.
    Done(Json),
}

/// The book.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<HashMap<String, Entry>>>);

impl Book {
    /// Begins an Action, or says what became of it.
    #[must_use]
    pub fn begin(&self, action: &str, token: &str) -> Found {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.get(action) {
            Some(Entry::Done(value)) => return Found::Done(value.clone()),
            Some(Entry::Working(newest)) => {
                newest.send_replace(token.to_owned());
                return Found::Working;
            }
            None => {}
        }
        if entries.len() >= MOST {
            entries.retain(|_, entry| matches!(entry, Entry::Working(_)));
        }
        let (sender, tokens) = watch::channel(token.to_owned());
        entries.insert(action.to_owned(), Entry::Working(sender));
        Found::New(tokens)
    }

    /// It is done.
    pub fn finish(&self, action: &str, value: Json) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(action.to_owned(), Entry::Done(value));
    }

    /// Nobody waits for it any more and nothing was done: a later delivery may begin it anew. A token that came since
    /// `seen` means that somebody does wait: then it stays.
    #[must_use]
    pub fn give_up(&self, action: &str, seen: &str) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = match entries.get(action) {
            Some(Entry::Working(newest)) => *newest.borrow() == seen,
            _ => true,
        };
        if same {
            entries.remove(action);
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_delivered_again_is_begun_once_and_answered_from_the_book() {
        let book = Book::default();
        let Found::New(tokens) = book.begin("a", "t1") else { panic!("it is new") };
        assert!(matches!(book.begin("a", "t2"), Found::Working));
        assert_eq!(*tokens.borrow(), "t2");
        book.finish("a", json!(1));
        assert!(matches!(book.begin("a", "t3"), Found::Done(value) if value == json!(1)));
        assert!(matches!(book.begin("b", "t1"), Found::New(_)));
    }

    #[test]
    fn work_that_nobody_waits_for_may_begin_anew_unless_a_newer_delivery_came() {
        let book = Book::default();
        assert!(matches!(book.begin("a", "t1"), Found::New(_)));
        assert!(matches!(book.begin("a", "t2"), Found::Working));
        assert!(!book.give_up("a", "t1"), "the second delivery waits");
        assert!(book.give_up("a", "t2"));
        assert!(matches!(book.begin("a", "t3"), Found::New(_)));
    }
}
