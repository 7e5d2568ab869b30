//! One line of the audit log, written when the work has really ended, whether or not whoever asked
//! for it is still there.

use std::fmt::Display;
use std::sync::Arc;

use tonic::Request;

use super::status;
use crate::security::{Caller, Guard};
use crate::service::ApiError;

/// What is asked for is told in a few words; names in it come from outside.
const LONGEST: usize = 200;

/// A call that is under way.
#[derive(Debug)]
pub(super) struct Entry {
    guard: Arc<Guard>,
    caller: Caller,
    call: &'static str,
    what: String,
    outcome: Option<String>,
}

impl Entry {
    /// Begins the line of a request.
    pub(super) fn new<T>(
        guard: &Arc<Guard>,
        request: &Request<T>,
        call: &'static str,
        what: &str,
    ) -> Self {
        let known = request.extensions().get::<Caller>().cloned();
        let caller = known.unwrap_or(Caller { peer: None, token: None });
        let end = what.floor_char_boundary(LONGEST.min(what.len()));
        let what = what.get(..end).unwrap_or_default().to_owned();
        Self { guard: Arc::clone(guard), caller, call, what, outcome: None }
    }

    /// Does the work and writes down what came of it.
    pub(super) fn around<T>(
        mut self,
        work: impl FnOnce() -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let answer = work();
        self.around_answer(answer)
    }
}

impl Entry {
    /// The same for work that waits.
    pub(super) async fn over<T, E: Display>(
        mut self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // If it is not waited for to its end.
        self.outcome = Some("given up; it may still be done".into());
        let answer = work.await;
        self.around_answer(answer)
    }

    fn around_answer<T, E: Display>(&mut self, answer: Result<T, E>) -> Result<T, E> {
        self.outcome = Some(match &answer {
            Ok(_) => "done".into(),
            Err(error) => status::short(&error.to_string()),
        });
        answer
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Dropped before the work began: too many wait, or the node is stopping.
        let outcome = self.outcome.as_deref().unwrap_or("not done");
        self.guard.audit().note(&self.caller, self.call, &self.what, outcome);
    }
}
