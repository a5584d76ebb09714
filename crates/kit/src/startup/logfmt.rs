// SPDX-License-Identifier: Apache-2.0
//! Log lines as `key=value`, beginning with `time=`, for pipelines that read them so.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes `time=… level=… target=… msg=… key=value …`.
pub(super) struct Logfmt;

impl<S, N> FormatEvent<S, N> for Logfmt
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let level = metadata.level().as_str().to_ascii_lowercase();
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, rest } = line;
        write!(
            writer,
            "time={} level={level} target={} msg={message}{rest}",
            jiff::Timestamp::now(),
            metadata.target()
        )?;
        writeln!(writer)
    }
}

#[derive(Default)]
struct Line {
    message: String,
    rest: String,
}

impl Line {
    fn put(&mut self, name: &str, value: &str) {
        let value = quoted(value);
        if name == "message" {
            self.message = value;
        } else {
            // Writing to a text does not fail.
            let _ = write!(self.rest, " {}={value}", name.trim_start_matches("r#"));
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), &format!("{value:?}"));
    }
}

/// A value as it is, or in quotes when it would not be read back otherwise.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '=';
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_begin_with_the_time_and_quote_what_needs_it() {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(Logfmt)
            .with_writer(move || writer.clone())
            .boxed();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(host = "n1", groups = "A=dead/17s P=dead", n = 3, "a verdict");
        });
        let text = String::from_utf8(sink.0.lock().clone()).unwrap();
        assert!(text.starts_with("time=20"), "{text}");
        assert!(
            text.ends_with(" msg=\"a verdict\" host=n1 groups=\"A=dead/17s P=dead\" n=3\n"),
            "{text}"
        );
        assert!(text.contains(" level=warn target=cobaltcore_kit"), "{text}");
    }
}
