//! Answers without an end of their own: rendered as they come, and ended with the credential that they were asked with.

use super::{errors, render};
use crate::engine::{ApprovalWatch, ApprovalsWatch, EngineError, Seen};
use crate::metrics::Watching;
use crate::proto::{self, watch_approvals_response::Event};
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt as _};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// What a streaming method answers with.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The states of one approval; while they are told, somebody is `watching`.
pub(super) fn approval(
    watch: ApprovalWatch,
    watching: Watching,
    ended: impl Future<Output = ()> + Send + 'static,
) -> Answers<proto::WatchApprovalResponse> {
    until(
        ended,
        unfold((watch, watching), |(mut watch, watching)| async move {
            let told = watch.next().await?.map_err(refused);
            let answer =
                told.map(|approval| proto::WatchApprovalResponse { approval: Some(render::approval(approval)) });
            Some((answer, (watch, watching)))
        }),
    )
}

/// What one person sees; while it is told, somebody is `watching`.
pub(super) fn approvals(
    watch: ApprovalsWatch,
    watching: Watching,
    ended: impl Future<Output = ()> + Send + 'static,
) -> Answers<proto::WatchApprovalsResponse> {
    until(
        ended,
        unfold((watch, watching), |(mut watch, watching)| async move {
            let told = watch.next().await?.map_err(refused);
            let answer = told.map(|seen| proto::WatchApprovalsResponse {
                event: Some(match seen {
                    Seen::Approval(approval) => Event::Approval(render::approval(*approval)),
                    Seen::SnapshotComplete { left_out } => {
                        Event::SnapshotComplete(proto::SnapshotComplete { left_out })
                    }
                }),
            });
            Some((answer, (watch, watching)))
        }),
    )
}

fn refused(error: EngineError) -> Status {
    errors::status(&error)
}

/// Answers until a credential ends; then they are refused, and what they held is let go, also where nobody reads them.
pub(super) fn until<T: Send + 'static>(
    ended: impl Future<Output = ()> + Send + 'static,
    answers: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Answers<T> {
    let (send, told) = mpsc::channel(1);
    let (refuse, refused) = oneshot::channel();
    // A body is asked for more only while its client takes what it has, so what holds something must not wait in it.
    tokio::spawn(async move {
        let (mut ended, mut answers) = (pin!(ended), pin!(answers));
        loop {
            let next = tokio::select! {
                biased;
                () = &mut ended => break,
                () = send.closed() => return,
                next = answers.next() => next,
            };
            let Some(next) = next else { return };
            tokio::select! {
                biased;
                () = &mut ended => break,
                sent = send.send(next) => if sent.is_err() { return },
            }
        }
        // Whoever has gone need not be told.
        let _ = refuse.send(errors::credential_ended());
    });
    Box::pin(Told { refused: Some(refused), told: Some(told) })
}

/// What is told, as it comes.
struct Told<T> {
    refused: Option<oneshot::Receiver<Status>>,
    told: Option<mpsc::Receiver<Result<T, Status>>>,
}

impl<T> Stream for Told<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Asked first: nothing more is said to who may not hear it, however much there is.
        let refused = self.refused.as_mut().map(|refused| Pin::new(refused).poll(context));
        match refused {
            Some(Poll::Ready(Ok(status))) => {
                (self.refused, self.told) = (None, None);
                return Poll::Ready(Some(Err(status)));
            }
            Some(Poll::Ready(Err(_))) => self.refused = None,
            Some(Poll::Pending) | None => {}
        }
        match &mut self.told {
            Some(told) => told.poll_recv(context),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{iter, pending, repeat};
    use tonic::Code;
    use tonic_types::StatusExt as _;

    fn is_the_end(status: &Status) -> bool {
        let reason = status.get_details_error_info().unwrap().reason;
        status.code() == Code::Unauthenticated && reason == "CREDENTIALS_ENDED"
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_credential_though_nothing_happens() {
        let (end, ended) = oneshot::channel::<()>();
        let mut answers = until(async { drop(ended.await) }, pending::<Result<(), Status>>());
        let next = tokio::spawn(async move { (answers.next().await, answers.next().await.is_none()) });
        tokio::task::yield_now().await;
        end.send(()).unwrap();
        let (told, over) = next.await.unwrap();
        assert!(is_the_end(&told.unwrap().unwrap_err()) && over);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_credential_however_much_there_is_to_say() {
        let mut answers = until(std::future::ready(()), repeat(()).map(Ok));
        assert!(is_the_end(&answers.next().await.unwrap().unwrap_err()));
        assert!(answers.next().await.is_none());
    }

    #[tokio::test]
    async fn answers_that_end_by_themselves_end_well() {
        let answers = until(std::future::pending(), iter([Ok(1), Ok(2)]));
        let all: Vec<i32> = answers.map(|answer| answer.unwrap()).collect().await;
        assert_eq!(all, [1, 2]);
    }
}
