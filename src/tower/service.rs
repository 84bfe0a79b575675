//! A service whose requests each need a permit.

use std::future::poll_fn;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use tower_layer::Layer;
use tower_service::Service;

use super::{LimitedBody, SemaphoreLayer};
use crate::error::Error;
use crate::semaphore::Permit;

/// A service that a [`SemaphoreLayer`] limits.
///
/// The service is always ready, because each call acquires its own permit. If `poll_ready` acquired
/// the permit, the service would hold permits for requests that never arrive.
#[derive(Debug, Clone)]
pub struct Limited<S> {
    inner: S,
    layer: SemaphoreLayer,
}

impl<S> Layer<S> for SemaphoreLayer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, layer: self.clone() }
    }
}

impl<S, Req, Res> Service<Request<Req>> for Limited<S>
where
    S: Service<Request<Req>, Response = Response<Res>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Req: Send + 'static,
    Res: Send + 'static,
{
    type Response = Response<LimitedBody<Res>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Req>) -> Self::Future {
        let (mut inner, layer) = (self.inner.clone(), self.layer.clone());
        Box::pin(async move {
            let Some(permit) = layer.enter().await else {
                return Ok(layer.refusal());
            };
            let watch = permit.watch();
            request.extensions_mut().insert(watch.clone());
            let respond = async {
                poll_fn(|cx| inner.poll_ready(cx)).await?;
                inner.call(request).await
            };
            tokio::select! {
                biased;
                // The handler's future is dropped, because its permit is lost.
                () = watch.ended() => Ok(layer.refusal()),
                response = respond => Ok(response?.map(|body| LimitedBody::new(body, permit))),
            }
        })
    }
}

impl SemaphoreLayer {
    /// Returns a permit, or `None` if the request is to be shed.
    async fn enter(&self) -> Option<Permit> {
        let semaphore = &self.semaphore;
        let permit = match self.places.try_acquire() {
            Ok(_place) => semaphore.acquire().await.map(Some),
            Err(_) => semaphore.request().try_acquire_in_time().await,
        };
        match permit {
            Ok(Some(permit)) => Some(permit),
            Ok(None) | Err(Error::Timeout { .. }) => {
                self.is_outage();
                None
            }
            Err(Error::Closed { .. } | Error::Shutdown) => None,
            Err(_) if self.is_outage() => None,
            Err(error) => {
                self.log_sometimes(&error);
                None
            }
        }
    }

    fn refusal<B>(&self) -> Response<LimitedBody<B>> {
        let mut response = Response::new(LimitedBody::default());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let pause = HeaderValue::from(self.retry_after_seconds());
        response.headers_mut().insert(header::RETRY_AFTER, pause);
        response
    }
}
