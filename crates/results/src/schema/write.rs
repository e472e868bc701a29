//! Writing a result file: atomically, and never losing the old one on failure.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::run::{Measurement, Run};

/// Why a result could not be written; the old file, if any, is untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file system refused.
    #[error(
        "cannot write result file {path}: {source}; nothing was overwritten, free space or give another path"
    )]
    Io {
        /// File.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A number is not finite, so JSON cannot carry it.
    #[error(
        "cannot write results: {what} is not a finite number, which JSON cannot hold; please report this bug"
    )]
    NotFinite {
        /// Which result.
        what: String,
    },
    /// A stream refused.
    #[error("cannot write results: {0}; check where the output goes")]
    Stream(#[from] io::Error),
}

impl Run {
    /// The file's text, indented, with a final newline.
    ///
    /// # Errors
    /// [`WriteError::NotFinite`] if any number is NaN or infinite.
    pub fn to_json(&self) -> Result<String, WriteError> {
        self.check_finite()?;
        let mut text = serde_json::to_string_pretty(self).map_err(io::Error::from)?;
        text.push('\n');
        Ok(text)
    }

    /// Writes the JSON file atomically: a temporary file in the same directory, then a rename.
    ///
    /// # Errors
    /// [`WriteError`]; an old file of that name is then as it was.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        write_file(path.as_ref(), self.to_json()?.as_bytes())
    }

    /// Writes CSV, one row for each result, with a header row.
    ///
    /// # Errors
    /// [`WriteError::Stream`].
    pub fn to_csv(&self, out: impl Write) -> Result<(), WriteError> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(CSV_COLUMNS).map_err(io::Error::from)?;
        for result in &self.results {
            csv.write_record(csv_row(result)).map_err(io::Error::from)?;
        }
        Ok(csv.flush()?)
    }

    /// Writes the CSV file atomically, as [`write`](Self::write) does.
    ///
    /// # Errors
    /// [`WriteError`]; an old file of that name is then as it was.
    pub fn write_csv(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        let mut text = Vec::new();
        self.to_csv(&mut text)?;
        write_file(path.as_ref(), &text)
    }

    /// JSON writes NaN as null, silently: a comparison of the file with the value finds every such field.
    fn check_finite(&self) -> Result<(), WriteError> {
        let same = |a: &serde_json::Result<Self>, b: &Self| a.as_ref().is_ok_and(|a| a == b);
        let trip = |run: &Self| serde_json::to_string(run).and_then(|text| serde_json::from_str(&text));
        if same(&trip(self), self) {
            return Ok(());
        }
        let culprit = self.results.iter().find(|result| {
            let alone = Self { results: vec![(*result).clone()], ..Self::default() };
            !same(&trip(&alone), &alone)
        });
        let what = culprit.map_or_else(
            || "a number of the environment".to_owned(),
            |r| {
                format!(
                    "a number of {} {} {} at {} B",
                    r.experiment,
                    r.device,
                    r.variant_text(","),
                    r.size_bytes
                )
            },
        );
        Err(WriteError::NotFinite { what })
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace(path, bytes).map_err(|source| WriteError::Io { path: path.display().to_string(), source })
}

/// Replaces a file as a whole: a temporary file in the same directory, then a rename. Links are followed; devices and
/// pipes are written in place.
///
/// # Errors
/// The system's; an old file is then as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A rename would replace a symbolic link by a file, and a device such as /dev/stdout, too.
    let target = match std::fs::metadata(path) {
        Ok(old) if !old.is_file() => {
            return std::fs::OpenOptions::new().write(true).open(path)?.write_all(bytes);
        }
        Ok(_) => std::fs::canonicalize(path)?,
        Err(_) => path.to_owned(),
    };
    let dir = match target.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".nicety-").suffix(".tmp");
    set_default_permissions(&mut builder);
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(target).map(drop).map_err(|e| e.error)
}

/// Temporary files are private by default; a result file is an ordinary file under the user's mask.
fn set_default_permissions(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    #[cfg(not(unix))]
    let _ = builder;
}

const CSV_COLUMNS: [&str; 30] = [
    "experiment",
    "device",
    "variant",
    "size_bytes",
    "metric",
    "unit",
    "clock",
    "n",
    "median",
    "ci95_low",
    "ci95_high",
    "ci95_reason",
    "mean",
    "min",
    "max",
    "p50",
    "p90",
    "p95",
    "p99",
    "p99.9",
    "p99.99",
    "first",
    "batch",
    "launches",
    "between_launch",
    "within_launch",
    "floor",
    "floor_ratio",
    "floor_what",
    "note",
];

fn csv_row(r: &Measurement) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    let quantile = |p: f64| number(r.quantiles.iter().find(|q| q.p == p).and_then(|q| q.value));
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        r.experiment.clone(),
        r.device.clone(),
        r.variant_text(";"),
        r.size_bytes.to_string(),
        r.metric.clone(),
        r.unit.clone(),
        r.clock.to_string(),
        r.n.to_string(),
        r.median.to_string(),
        number(r.ci95.map(|c| c[0])),
        number(r.ci95.map(|c| c[1])),
        text(&r.ci95_reason),
        number(r.mean),
        number(r.min),
        number(r.max),
        quantile(0.5),
        quantile(0.9),
        quantile(0.95),
        quantile(0.99),
        quantile(0.999),
        quantile(0.9999),
        number(r.first),
        r.batch.to_string(),
        r.launches.len().to_string(),
        number(r.between_launch),
        number(r.within_launch),
        number(r.floor.as_ref().map(|f| f.value)),
        number(r.floor.as_ref().map(|f| f.ratio)),
        r.floor.as_ref().map_or_else(String::new, |f| f.what.clone()),
        text(&r.note),
    ]
}
