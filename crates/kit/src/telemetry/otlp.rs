// SPDX-License-Identifier: Apache-2.0
//! Traces over OTLP (protobuf over HTTP), in batches and in the background. Losing traces
//! never holds work up.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::runtime::Tokio;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use tracing_subscriber::{Layer, Registry};

use crate::error::Error;
use crate::startup::Component;

/// A running export of traces.
#[derive(Debug)]
pub struct TraceExport {
    provider: SdkTracerProvider,
}

impl TraceExport {
    /// Starts sending spans to `endpoint`, for example `http://collector:4318/v1/traces`.
    /// Needs a Tokio runtime with more than one thread.
    pub fn start(
        component: &Component,
        endpoint: &str,
    ) -> Result<(Self, Box<dyn Layer<Registry> + Send + Sync>), Error> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(endpoint)
            .build()
            .map_err(|error| Error::Traces {
                endpoint: endpoint.to_owned(),
                reason: error.to_string(),
            })?;
        let resource = Resource::builder()
            .with_service_name(component.name)
            .with_attribute(opentelemetry::KeyValue::new("service.version", component.version))
            .build();
        // The exporter speaks HTTP on Tokio, so its batches must be sent from there too.
        let batches = BatchSpanProcessor::builder(exporter, Tokio).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(batches)
            .with_resource(resource)
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(component.name));
        Ok((Self { provider }, layer.boxed()))
    }

    /// Sends what is waiting and stops.
    pub(crate) fn finish(self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "traces may be missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tracing_subscriber::layer::SubscriberExt as _;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn spans_arrive_at_the_collector() {
        let collector = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", collector.local_addr().unwrap());
        let request = tokio::spawn(async move {
            let (mut stream, _) = collector.accept().await.unwrap();
            let mut text = vec![0; 64 * 1024];
            let read = stream.read(&mut text).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await
                .unwrap();
            String::from_utf8_lossy(&text[..read]).into_owned()
        });
        let component = Component {
            name: "traced",
            version: "1",
            commit: "c",
        };
        let (export, layer) = TraceExport::start(&component, &endpoint).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(vec![layer]), || {
            tracing::info_span!("a pass over node1").in_scope(|| {});
        });
        tokio::task::spawn_blocking(|| export.finish()).await.unwrap();
        // The limit only keeps a failure from hanging; finishing has already sent everything.
        let limit = std::time::Duration::from_secs(30);
        let request = tokio::time::timeout(limit, request)
            .await
            .expect("no spans")
            .unwrap();
        assert!(request.starts_with("POST /v1/traces HTTP/1.1"), "{request}");
    }
}
