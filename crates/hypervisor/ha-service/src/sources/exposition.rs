// SPDX-License-Identifier: Apache-2.0
//! Metrics in text form, as exporters write them: the format 0.0.4 and OpenMetrics 1.0. A text is
//! taken as a whole or not at all, because half of a truth is a wrong verdict.

use std::collections::HashMap;

use super::expr::Labels;

/// Bytes of one text.
pub const MOST_BYTES: usize = 16 << 20;
/// Samples of one text.
pub const MOST_SAMPLES: usize = 500_000;
/// Bytes of one line.
const LONGEST_LINE: usize = 1 << 20;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric.
    pub metric: String,
    /// Its labels.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// Its samples.
    pub samples: Vec<Sample>,
    /// Series that were given twice; the last counts.
    pub doubled: usize,
}

/// A text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TextError {
    /// Where.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// Reads a whole text.
///
/// ```
/// use cobaltcore_ha_service::sources::exposition::parse;
/// let text = "# TYPE up gauge\nup{job=\"node\"} 1 1700000000000\n";
/// assert_eq!(parse(text).unwrap().samples[0].value, 1.0);
/// ```
pub fn parse(text: &str) -> Result<Scrape, TextError> {
    let mut reader = Reader::new(|_: &str| true, MOST_SAMPLES);
    reader.read(text.as_bytes())?;
    reader.end()
}

/// Reads a text as it comes in, and keeps what somebody wants of it. All of it must be good nevertheless; of what nobody
/// wants, nobody is told whether it was there twice.
///
/// ```
/// use cobaltcore_ha_service::sources::exposition::Reader;
/// let mut reader = Reader::new(|metric: &str| metric == "up", 10);
/// reader.read(b"load 0.5\nu")?;
/// reader.read(b"p 1\n")?;
/// assert_eq!(reader.end()?.samples.len(), 1);
/// # Ok::<(), cobaltcore_ha_service::sources::exposition::TextError>(())
/// ```
pub struct Reader<W> {
    wanted: W,
    most: usize,
    /// A line that has not ended yet.
    begun: Vec<u8>,
    bytes: usize,
    lines: usize,
    samples: usize,
    ended: bool,
    kept: Scrape,
    places: HashMap<(String, Labels), usize>,
}

impl<W: Fn(&str) -> bool> Reader<W> {
    /// One that keeps at most so many series, of the metrics that are wanted.
    pub fn new(wanted: W, most: usize) -> Self {
        Self {
            wanted,
            most,
            begun: Vec::new(),
            bytes: 0,
            lines: 0,
            samples: 0,
            ended: false,
            kept: Scrape::default(),
            places: HashMap::new(),
        }
    }

    /// The next piece.
    pub fn read(&mut self, piece: &[u8]) -> Result<(), TextError> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > MOST_BYTES {
            return Err(TextError {
                line: 0,
                what: format!("there are more than {MOST_BYTES} bytes"),
            });
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(rest) => self.line(rest)?,
                None => self.begin(part)?,
            }
        }
        Ok(())
    }

    /// What was kept, once there is no more.
    pub fn end(mut self) -> Result<Scrape, TextError> {
        if !self.begun.is_empty() {
            self.line(b"")?;
        }
        Ok(self.kept)
    }

    /// Something of a line, but not its end.
    fn begin(&mut self, part: &[u8]) -> Result<(), TextError> {
        if self.begun.len() + part.len() > LONGEST_LINE {
            self.lines += 1;
            return Err(self.wrong(format!("it has more than {LONGEST_LINE} bytes")));
        }
        self.begun.extend_from_slice(part);
        Ok(())
    }

    /// The rest of a line.
    fn line(&mut self, rest: &[u8]) -> Result<(), TextError> {
        self.begin(rest)?;
        self.lines += 1;
        let mut line = std::mem::take(&mut self.begun);
        let read = self.whole(&line).map_err(|what| self.wrong(what));
        // Its room is that of the next one.
        line.clear();
        self.begun = line;
        read
    }

    fn wrong(&self, what: String) -> TextError {
        TextError {
            line: self.lines,
            what,
        }
    }

    fn whole(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|_| "it is not text")?;
        let line = line.trim_end_matches('\r');
        if self.ended && !line.trim().is_empty() {
            return Err("something follows # EOF".into());
        }
        if let Some(comment) = line.trim_start().strip_prefix('#') {
            self.ended = comment.trim() == "EOF";
            return Ok(());
        }
        if line.trim().is_empty() {
            return Ok(());
        }
        if self.samples >= MOST_SAMPLES {
            return Err(format!("there are more than {MOST_SAMPLES} samples"));
        }
        self.samples += 1;
        let sample = sample(line)?;
        if (self.wanted)(&sample.metric) {
            self.keep(sample)?;
        }
        Ok(())
    }

    fn keep(&mut self, sample: Sample) -> Result<(), String> {
        let key = (sample.metric.clone(), sample.labels.clone());
        if let Some(place) = self.places.get(&key) {
            self.kept.doubled += 1;
            if let Some(known) = self.kept.samples.get_mut(*place) {
                *known = sample;
            }
            return Ok(());
        }
        let place = self.kept.samples.len();
        if place >= self.most {
            return Err(format!(
                "rules ask for more than {} series of this text, such as {}",
                self.most, sample.metric
            ));
        }
        self.places.insert(key, place);
        self.kept.samples.push(sample);
        Ok(())
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let line = line.trim_start();
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(line.len());
    let (metric, rest) = line.split_at(end);
    if metric.is_empty() || metric.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("a metric's name was expected".into());
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Labels::new(), rest),
    };
    // An exemplar follows a hash; it says nothing about a host.
    let rest = rest.split(" # ").next().unwrap_or_default();
    let mut words = rest.split_ascii_whitespace();
    let value = number(words.next().ok_or("a value was expected")?)?;
    if let Some(at) = words.next() {
        at.parse::<f64>()
            .map_err(|_| format!("{at:?} is not a timestamp"))?;
    }
    if let Some(more) = words.next() {
        return Err(format!("{more:?} was not expected"));
    }
    Ok(Sample {
        metric: metric.to_owned(),
        labels,
        value,
    })
}

fn number(word: &str) -> Result<f64, String> {
    match word {
        "+Inf" | "Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        "NaN" | "nan" => Ok(f64::NAN),
        word => word.parse().map_err(|_| format!("{word:?} is not a number")),
    }
}

/// The labels up to the closing brace, and what follows it.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut out = Labels::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((out, after));
        }
        let (name, after) = rest.split_once('=').ok_or("a label and = were expected")?;
        let name = name.trim();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(format!("{name:?} is not a label"));
        }
        let after = after
            .trim_start()
            .strip_prefix('"')
            .ok_or("a quote was expected")?;
        let (value, after) = quoted(after)?;
        out.insert(name.to_owned(), value);
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.starts_with('}') => rest,
            None => return Err("a comma or a closing brace was expected".into()),
        };
    }
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut escaped = false;
    for (n, c) in text.char_indices() {
        match (escaped, c) {
            (false, '"') => return Ok((out, text.get(n + 1..).unwrap_or_default())),
            (false, '\\') => escaped = true,
            (true, 'n') => {
                out.push('\n');
                escaped = false;
            }
            (true, '"' | '\\') => {
                out.push(c);
                escaped = false;
            }
            // An escape nobody knows is kept as it is.
            (true, c) => {
                out.push('\\');
                out.push(c);
                escaped = false;
            }
            (false, c) => out.push(c),
        }
    }
    Err("a closing quote was expected".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_exporters_are_read() {
        let text = concat!(
            "# HELP node_load1 1m load average.\n# TYPE node_load1 gauge\nnode_load1 0.21\n",
            "http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n",
            "msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot find file:\\n\\\"FILE.TXT\\\"\"} 1.458255915e9\n",
            "metric_without_timestamp_and_labels 12.47\n\nsomething_weird{problem=\"division by zero\"} +Inf -3982045\n",
            "rpc_duration_seconds{quantile=\"0.01\", } NaN\n",
            "foo_bucket{le=\"1.0\"} 11 # {trace_id=\"KOO5S4vxi0o\"} 0.67\n# EOF\n",
        );
        let scrape = parse(text).unwrap();
        let values: Vec<f64> = scrape.samples.iter().map(|sample| sample.value).collect();
        assert_eq!(values[..3], [0.21, 1027.0, 1_458_255_915.0]);
        assert_eq!(values[4], f64::INFINITY);
        assert!(values[5].is_nan());
        assert_eq!(values[6], 11.0);
        assert_eq!(
            scrape.samples[2].labels["error"],
            "Cannot find file:\n\"FILE.TXT\""
        );
        assert_eq!(scrape.samples[2].labels["path"], "C:\\DIR\\FILE.TXT");
    }

    #[test]
    fn the_last_of_doubled_series_counts() {
        let scrape = parse("a{x=\"1\"} 1\na{x=\"2\"} 2\na{x=\"1\"} 3\n").unwrap();
        assert_eq!((scrape.samples.len(), scrape.doubled), (2, 1));
        assert_eq!(scrape.samples[0].value, 3.0);
    }

    #[test]
    fn a_broken_half_spoils_the_whole() {
        for (text, line) in [
            ("up 1\nup{job=\"x} 0\n", 2),
            ("up 1\nup zero\n", 2),
            ("up\n", 1),
            ("up{a=b} 1\n", 1),
            ("up{a=\"b\" c=\"d\"} 1\n", 1),
            ("1up 1\n", 1),
            ("up 1 2 3\n", 1),
            ("up 1 soon\n", 1),
            ("# EOF\nup 1\n", 2),
            ("up{\n", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text:?}");
        }
        assert!(parse(&"a 1\n".repeat(5 << 20)).is_err(), "too large");
    }

    #[test]
    fn a_text_that_comes_in_pieces_is_the_same_text() {
        let text = "a{x=\"\u{e4}\"} 1\r\n# TYPE b gauge\nb 2\nb 3\n\nc 4";
        let whole = parse(text).unwrap();
        assert_eq!((whole.samples.len(), whole.doubled), (3, 1));
        for size in 1..text.len() {
            let mut reader = Reader::new(|_: &str| true, 3);
            for piece in text.as_bytes().chunks(size) {
                reader.read(piece).unwrap();
            }
            assert_eq!(reader.end().unwrap(), whole, "{size}");
        }
    }

    #[test]
    fn what_nobody_wants_is_read_and_not_kept() {
        let mut reader = Reader::new(|metric: &str| metric == "up", 1);
        for n in 0..10_000 {
            reader.read(format!("other{{n=\"{n}\"}} 1\n").as_bytes()).unwrap();
            assert!(reader.begun.is_empty() && reader.places.is_empty());
        }
        reader.read(b"up 1\nup 0\n").unwrap();
        let kept = reader.end().unwrap();
        assert_eq!((kept.samples.len(), kept.doubled), (1, 1));
        let mut reader = Reader::new(|_: &str| false, 1);
        assert!(
            reader.read(b"up 1\nother zero\n").is_err(),
            "it must be good all the same"
        );
    }

    #[test]
    fn a_text_with_more_than_there_is_room_for_is_refused_and_says_why() {
        let mut reader = Reader::new(|metric: &str| metric == "a", 2);
        reader
            .read(b"a{n=\"1\"} 1\nb 1\na{n=\"2\"} 1\na{n=\"2\"} 2\n")
            .unwrap();
        let error = reader.read(b"a{n=\"3\"} 1\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 5: rules ask for more than 2 series of this text, such as a"
        );
        let mut reader = Reader::new(|_: &str| true, 2);
        let endless = vec![b'a'; LONGEST_LINE / 2 + 1];
        reader.read(&endless).unwrap();
        assert_eq!(reader.read(&endless).unwrap_err().line, 1);
        assert_eq!(reader.begun.len(), endless.len(), "nothing more was kept of it");
    }

    /// Texts one or a few bytes away from a good one: no panic, and a value or a line number.
    #[test]
    fn no_damage_to_a_good_text_breaks_the_reader() {
        let good = "# TYPE a counter\na_total{x=\"1\\n\\\"\",y=\"\u{e4}\"} 1.5e3 1395066363000 # {t=\"q\"} 0.6\nb NaN\nc{} -Inf\n# EOF\n";
        let odd = b"{}\"\\=,# \n\r\t+-.eEIN0\xff\0";
        let mut chance = fastrand::Rng::with_seed(1);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = good.as_bytes().to_vec();
            for _ in 0..chance.usize(1..4) {
                let place = chance.usize(..bytes.len());
                match chance.u8(..4) {
                    0 => bytes[place] = odd[chance.usize(..odd.len())],
                    1 => bytes.insert(place, odd[chance.usize(..odd.len())]),
                    2 => drop(bytes.remove(place)),
                    _ => bytes.truncate(place.max(8)),
                }
            }
            // What is not text is refused before.
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            match parse(&text) {
                Ok(scrape) => read += usize::from(scrape.samples.len() <= 4),
                Err(error) => refused += usize::from(error.line <= text.lines().count()),
            }
        }
        assert!(read > 1000 && refused > 1000, "{read} {refused}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read(name in "[a-z_]{1,10}", value in "\\PC{0,20}", number in proptest::num::f64::NORMAL) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let scrape = parse(&format!("{name}{{l=\"{escaped}\"}} {number}\n")).unwrap();
            proptest::prop_assert_eq!(&scrape.samples[0].labels["l"], &value);
            proptest::prop_assert_eq!(scrape.samples[0].value, number);
        }
    }
}
