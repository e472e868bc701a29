//! The options that name the secret shared with a server.

use std::ffi::OsString;
use std::path::PathBuf;

use bench::token::{self, Token};
use clap::Args;

use crate::error::Failure;

/// The secret that `nicety serve` and its clients share.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// File with the secret that both sides share, readable by its owner only; or set NICETY_TOKEN
    ///
    /// Each side proves to the other that it has the secret; the secret itself is never sent.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The secret itself; every user of this machine can see it while the command runs
    #[arg(long, value_name = "SECRET")]
    token: Option<String>,
}

impl TokenArgs {
    /// Reads the token: from the options, else from the environment, else `None`.
    pub(crate) fn read(&self) -> Result<Option<Token>, Failure> {
        let found = match (&self.token_file, &self.token) {
            (Some(path), _) => Some(Token::from_file(path).map_err(|why| why.to_string())),
            (None, Some(text)) => Some(Token::new(text).map_err(|why| format!("--token is {why}"))),
            (None, None) => std::env::var(token::VARIABLE)
                .ok()
                .map(|text| Token::new(&text).map_err(|why| format!("{} is {why}", token::VARIABLE))),
        };
        found.transpose().map_err(Failure::usage)
    }

    /// The options for another command in the same directory and environment.
    pub(crate) fn command_options(&self) -> Vec<OsString> {
        let file = self.token_file.iter().flat_map(|path| ["--token-file".into(), path.into()]);
        let text = self.token.iter().flat_map(|text| ["--token".into(), text.into()]);
        file.chain(text).collect()
    }
}
