//! The body of a response, which holds the permit of its request.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};

use crate::semaphore::Permit;

/// A body that releases its permit when it ends or is dropped. If the permit is lost, the body ends
/// with [`Error::Lost`](crate::Error::Lost).
pub struct LimitedBody<B> {
    /// `None` after the end of the body, and in a response without a permit.
    held: Option<Held<B>>,
}

struct Held<B> {
    body: Pin<Box<B>>,
    permit: Permit,
    is_over: BoxFuture<'static, ()>,
}

impl<B> LimitedBody<B> {
    pub(super) fn new(body: B, permit: Permit) -> Self {
        let watch = permit.watch();
        let is_over = Box::pin(async move { watch.ended().await });
        Self { held: Some(Held { body: Box::pin(body), permit, is_over }) }
    }
}

/// An empty body without a permit. Layers around this layer need such a body for their own
/// responses.
impl<B> Default for LimitedBody<B> {
    fn default() -> Self {
        Self { held: None }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    type Data = B::Data;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Self::Error>>> {
        let Some(held) = &mut self.held else {
            return Poll::Ready(None);
        };
        if held.is_over.as_mut().poll(cx).is_ready() {
            let lost = held.permit.loss("response");
            self.held = None;
            return Poll::Ready(Some(Err(lost.into())));
        }
        let frame = ready!(held.body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.held = None;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.held.as_ref().map_or(SizeHint::with_exact(0), |held| held.body.size_hint())
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permit = self.held.as_ref().map(|held| &held.permit);
        f.debug_struct("LimitedBody").field("permit", &permit).finish_non_exhaustive()
    }
}
