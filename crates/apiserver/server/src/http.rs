// SPDX-License-Identifier: Apache-2.0
//! The wire: HTTP in, HTTP out. Everything that is the same for every request happens here, once:
//! origin and host checks, audit ids, limits on bodies, panics, compression, headers, the audit log.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::BoxStream;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, ORIGIN, RETRY_AFTER, VARY, WARNING,
};
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};

use crate::api::Api;
use crate::audit::Entry;
use crate::call::{Answer, Body};
use crate::dispatch::{Credentials, Head};
use crate::negotiate::Form;
use crate::status::{ApiError, ApiResult};

/// Bodies above this size are compressed for clients that accept it.
const COMPRESS_ABOVE: usize = 128 << 10;
/// As much of a body that is too large is read before the refusal is sent.
const DRAINED: usize = 64 << 20;
/// As much of the body of a request that was refused unread is read, and as long.
const REFUSED_DRAIN: usize = 256 << 10;
const REFUSED_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// A request that takes longer is logged.
const SLOW: std::time::Duration = std::time::Duration::from_secs(1);
static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Which of the rules that share out the server a request fell under, and which share it got from.
/// There is one of each, and they are called the same everywhere.
static SHARE: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
        HeaderValue::from_static("6b4e0a5c-6f0e-4f51-9f0b-5c1d0e7a1f01"),
    ),
    (
        HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"),
        HeaderValue::from_static("6b4e0a5c-6f0e-4f51-9f0b-5c1d0e7a1f02"),
    ),
];

/// The body of a response.
pub enum ResponseBody {
    /// All of it; taken when sent.
    Full(Option<Bytes>),
    /// All of it, and a line break; the body and then the break are taken when sent.
    Line(Option<Bytes>),
    /// Pieces as they come.
    Stream(BoxStream<'static, Bytes>),
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Line(_) => "Line",
            Self::Stream(_) => "Stream",
        })
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match this {
            Self::Full(body) => {
                Poll::Ready(body.take().filter(|b| !b.is_empty()).map(|b| Ok(Frame::data(b))))
            }
            Self::Line(body) => {
                let first = body.take();
                if first.is_some() {
                    *this = Self::Full(Some(Bytes::from_static(b"\n")));
                }
                Poll::Ready(first.map(|b| Ok(Frame::data(b))))
            }
            Self::Stream(stream) => stream
                .as_mut()
                .poll_next(cx)
                .map(|next| next.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(body) => SizeHint::with_exact(body.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Line(body) => SizeHint::with_exact(body.as_ref().map_or(0, |b| b.len() as u64 + 1)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Where a request came in.
#[derive(Debug, Clone)]
pub struct Origin {
    /// How the caller is known.
    pub credentials: Credentials,
    /// Whether the Host header must name this server (network connections).
    pub check_host: bool,
    /// The peer, for the audit log.
    pub peer: String,
}

impl Api {
    /// Serves one request.
    pub async fn serve<B>(self: Arc<Self>, request: Request<B>, origin: Origin) -> Response<ResponseBody>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let began = Instant::now();
        let (mut parts, body) = request.into_parts();
        // HTTP/2 names the host in the request line.
        if let Some(authority) = parts.uri.authority()
            && !parts.headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.insert(HOST, host);
        }
        let audit_id = audit_id(&parts.headers);
        let accepts_gzip = accepts_gzip(&parts.headers);
        let form = Form::of_errors(&parts.headers, parts.uri.query().unwrap_or_default());
        let head_only = parts.method == Method::HEAD;
        let head = Head::new(parts.method, &parts.uri, parts.headers);
        let mut entry = Entry::new(&head, &origin.peer, &audit_id);
        let handled = std::panic::AssertUnwindSafe(self.answer(head, body, &origin, &mut entry))
            .catch_unwind()
            .await;
        let (result, warnings) = handled.unwrap_or_else(|_| {
            tracing::error!(audit_id = ?audit_id, "a request handler panicked");
            (
                Err(ApiError::internal(
                    "this request caused a failure inside the server",
                )),
                Vec::new(),
            )
        });
        let mut response = render(result, form, accepts_gzip, entry.may_compress());
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID.clone(), audit_id);
        // Whoever was not let in had no share.
        if !entry.user.is_empty() {
            headers.extend(SHARE.iter().cloned());
        }
        if !headers.contains_key(CACHE_CONTROL) {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        }
        for warning in warnings {
            let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) =
                HeaderValue::from_bytes(format!("299 - \"{}\"", quoted.replace(['\n', '\r'], " ")).as_bytes())
            {
                headers.append(WARNING, value);
            }
        }
        if head_only {
            *response.body_mut() = ResponseBody::Full(None);
        }
        let took = began.elapsed();
        entry.finish(response.status().as_u16(), took);
        if took > SLOW && !entry.is_watch() {
            tracing::warn!(request = %entry, millis = took.as_millis() as u64, "slow request");
        }
        self.metrics.request(&entry, response.body().size_hint().exact());
        self.audit.write(&entry, &self.clock);
        response
    }

    async fn answer<B>(
        self: &Arc<Self>,
        head: Head,
        body: B,
        origin: &Origin,
        entry: &mut Entry,
    ) -> (ApiResult<Answer>, Vec<String>)
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = std::pin::pin!(body);
        let (user, _place) = match self.let_in(&head, origin, entry).await {
            Ok(known) => known,
            Err(error) => {
                // A connection whose body was left unread could not be used again.
                let _ = tokio::time::timeout(REFUSED_WAIT, drain(body.as_mut(), REFUSED_DRAIN)).await;
                return (Err(error), Vec::new());
            }
        };
        match self.read_body(body).await {
            Ok(body) => self.handle(head, user, body).await,
            Err(error) => (Err(error), Vec::new()),
        }
    }

    /// Who asks, and a place among the requests under way, for those who may ask this at all.
    async fn let_in(
        &self,
        head: &Head,
        origin: &Origin,
        entry: &mut Entry,
    ) -> ApiResult<(cobaltcore_access::identity::User, crate::dispatch::Place<'_>)> {
        let user = self.admit_request(head, origin, entry).await?;
        let place = self.take_place(head)?;
        self.require(&self.attributes(&user, &head.info))?;
        Ok((user, place))
    }

    async fn admit_request(
        &self,
        head: &Head,
        origin: &Origin,
        entry: &mut Entry,
    ) -> ApiResult<cobaltcore_access::identity::User> {
        if head.headers.contains_key(ORIGIN) {
            return Err(ApiError::new(
                403,
                "Forbidden",
                "requests from web pages are not served; talk to this API through a backend",
            ));
        }
        if origin.check_host {
            self.check_host(head)?;
        }
        if head.info.verb != "watch" {
            crate::deadline::check(&head.query)?;
        }
        let user = self.authenticate(head, &origin.credentials)?;
        entry.user.clone_from(&user.name);
        self.faults.strike(&user, &head.info).await?;
        Ok(user)
    }

    fn check_host(&self, head: &Head) -> ApiResult<()> {
        let host = head
            .headers
            .get(HOST)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        if host.is_empty() || self.host_allowed(host) {
            return Ok(());
        }
        Err(ApiError::new(
            421,
            "MisdirectedRequest",
            "the Host header names another server",
        ))
    }

    async fn read_body<B>(&self, body: B) -> ApiResult<Bytes>
    where
        B: HttpBody + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.config.max_request_bytes;
        let mut body = std::pin::pin!(body);
        if body.size_hint().lower() > limit as u64 {
            drain(body.as_mut(), DRAINED).await;
            return Err(ApiError::too_large(limit));
        }
        match Limited::new(body.as_mut(), limit).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                drain(body.as_mut(), DRAINED).await;
                Err(ApiError::too_large(limit))
            }
            Err(error) => Err(ApiError::bad_request(format!("error reading the body: {error}"))),
        }
    }
}

/// Reads what a client is still sending, and forgets it: most clients read the answer only when they
/// are done. Whoever sends much more than is allowed is cut off.
async fn drain<B>(mut body: Pin<&mut B>, most: usize)
where
    B: HttpBody,
{
    let mut rest = most;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let size = frame.data_ref().map_or(0, bytes::Buf::remaining);
        match rest.checked_sub(size) {
            Some(left) => rest = left,
            None => return,
        }
    }
}

fn audit_id(headers: &http::HeaderMap) -> HeaderValue {
    let sent = headers
        .get(&AUDIT_ID)
        .filter(|v| !v.is_empty() && v.len() <= 1024)
        .cloned();
    sent.unwrap_or_else(|| {
        HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
            .unwrap_or(HeaderValue::from_static("unknown"))
    })
}

fn accepts_gzip(headers: &http::HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|coding| coding.trim() == "gzip")
}

fn render(
    result: ApiResult<Answer>,
    form: Form,
    accepts_gzip: bool,
    may_compress: bool,
) -> Response<ResponseBody> {
    let mut answer = match result {
        Ok(answer) => answer,
        Err(error) => return render_error(&error, form),
    };
    let mut response = Response::new(ResponseBody::Full(None));
    *response.status_mut() =
        http::StatusCode::from_u16(answer.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if answer.code != 304 {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    }
    for (name, value) in answer.headers {
        headers.append(name, value);
    }
    match answer.body {
        Body::Stream(stream) => *response.body_mut() = ResponseBody::Stream(stream),
        Body::Full(mut body) => {
            if accepts_gzip
                && may_compress
                && body.len() > COMPRESS_ABOVE
                && !headers.contains_key(CONTENT_ENCODING)
            {
                body = compress(&body, std::mem::take(&mut answer.line));
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            }
            let body = whole(body, answer.line);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.size_hint().lower()));
            *response.body_mut() = body;
        }
    }
    response
}

fn render_error(error: &ApiError, form: Form) -> Response<ResponseBody> {
    let (content_type, body) = if let Some(text) = error.as_text() {
        ("text/plain; charset=utf-8", whole(text.to_owned().into(), false))
    } else {
        let status = crate::view::encode(form, crate::store::serialize(&error.to_status()).into());
        (form.content_type(), whole(status, form.ends_line()))
    };
    let length = body.size_hint().lower();
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(error.code()).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    if error.is_unsniffed() {
        headers.insert(
            http::header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
    }
    if let Some(seconds) = error.retry_after_seconds() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A body that is there as a whole, with or without a line break behind it.
fn whole(body: Bytes, line: bool) -> ResponseBody {
    if line {
        ResponseBody::Line(Some(body))
    } else {
        ResponseBody::Full(Some(body))
    }
}

fn compress(body: &[u8], line: bool) -> Bytes {
    use std::io::Write;
    let mut encoder =
        flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 8), flate2::Compression::fast());
    // Writing into a vector cannot fail.
    let _ = encoder.write_all(body);
    if line {
        let _ = encoder.write_all(b"\n");
    }
    encoder.finish().unwrap_or_default().into()
}
