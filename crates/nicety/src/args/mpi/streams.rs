//! The options of `nicety mpirun` for the input and output of ranks.

use clap::Args;
use launcher::{Output, Readers};

/// Input and output of ranks.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Which rank reads standard input; or all, or none
    #[arg(long, value_name = "RANK|all|none", default_value = "0", value_parser = readers)]
    pub(crate) stdin: Readers,
    /// Begin each line of output with its rank: `[3] text`
    #[arg(long)]
    tag: bool,
    /// Begin each line of output with this; fields are %r rank, %R with leading zeros, %h host, %t seconds since 1970
    ///
    /// Several follow each other; --tag is the last. Further fields: %p number of the host, %g number of the job, %% a percent sign.
    #[arg(long, value_name = "PATTERN")]
    prepend_pattern: Vec<String>,
    /// Also write the output of each rank to NAME.RANK; with NAME:nocopy, only there
    #[arg(long, value_name = "NAME", conflicts_with_all = ["outfile_pattern", "errfile_pattern"])]
    output_filename: Option<String>,
    /// Write standard output of ranks to files, such as out.%r, with fields as in --prepend-pattern
    #[arg(long, value_name = "PATTERN")]
    outfile_pattern: Option<String>,
    /// Write standard error of ranks to files
    #[arg(long, value_name = "PATTERN")]
    errfile_pattern: Option<String>,
    /// Print standard error of ranks on standard output
    #[arg(long)]
    merge_stderr_to_stdout: bool,
}

impl StreamArgs {
    /// Where output goes.
    pub(crate) fn output(&self) -> Output {
        let mut tag = self.prepend_pattern.concat();
        if self.tag {
            tag += "[%r] ";
        }
        let mut output = Output {
            tag: (!tag.is_empty()).then_some(tag),
            out_file: self.outfile_pattern.clone(),
            err_file: self.errfile_pattern.clone(),
            is_copied: false,
            merges_errors: self.merge_stderr_to_stdout,
        };
        if let Some(name) = &self.output_filename {
            let only = name.strip_suffix(":nocopy").or_else(|| name.strip_suffix(":NOCOPY"));
            let pattern = format!("{}.%R", only.unwrap_or(name).replace('%', "%%"));
            output.is_copied = only.is_none();
            (output.out_file, output.err_file) = (Some(pattern.clone()), Some(pattern));
        }
        output
    }
}

fn readers(text: &str) -> Result<Readers, String> {
    match text {
        "all" => Ok(Readers::All),
        "none" => Ok(Readers::None),
        rank => rank
            .parse()
            .map(Readers::Rank)
            .map_err(|_| format!("{text:?} is not a rank; write 0, all or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> StreamArgs {
        StreamArgs {
            stdin: Readers::All,
            tag: false,
            prepend_pattern: Vec::new(),
            output_filename: None,
            outfile_pattern: None,
            errfile_pattern: None,
            merge_stderr_to_stdout: false,
        }
    }

    #[test]
    fn output_options_are_combined() {
        assert_eq!(args().output(), Output::default());
        let tags = StreamArgs { tag: true, prepend_pattern: vec!["%t ".into(), "%h ".into()], ..args() };
        assert_eq!(tags.output().tag.as_deref(), Some("%t %h [%r] "));
        let named = |name: &str| StreamArgs { output_filename: Some(name.to_owned()), ..args() }.output();
        let copied = named("a%b");
        assert_eq!((copied.out_file.as_deref(), copied.is_copied), (Some("a%%b.%R"), true));
        assert_eq!(copied.err_file, copied.out_file);
        assert_eq!(
            (named("a:nocopy").out_file.as_deref(), named("a:nocopy").is_copied),
            (Some("a.%R"), false)
        );
        let split = StreamArgs { outfile_pattern: Some("o%r".into()), ..args() }.output();
        assert_eq!((split.out_file.as_deref(), split.err_file), (Some("o%r"), None));
    }

    #[test]
    fn readers_are_parsed() {
        assert_eq!(readers("all"), Ok(Readers::All));
        assert_eq!(readers("none"), Ok(Readers::None));
        assert_eq!(readers("3"), Ok(Readers::Rank(3)));
        assert!(readers("-1").is_err() && readers("").is_err() && readers("some").is_err());
    }
}
