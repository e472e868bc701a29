//! A flat list of a file's tokens with their lines: rules see code, also inside macros, and neither comments nor
//! strings.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The kind of a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier or keyword.
    Ident(String),
    /// One character of punctuation; `::` is two tokens.
    Punct(char),
    /// The beginning of a group.
    Open(Delimiter),
    /// The end of a group.
    Close,
    /// A literal.
    Literal,
}

/// A token and the line (from 1) that it starts on.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) line: usize,
}

impl Token {
    /// Whether this is the identifier `name`.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(&self.kind, TokenKind::Ident(ident) if ident == name)
    }
}

/// All tokens of a stream, groups flattened.
pub(crate) fn flatten(stream: TokenStream) -> Vec<Token> {
    let mut tokens = Vec::new();
    append(stream, &mut tokens);
    tokens
}

fn append(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(ident) => TokenKind::Ident(ident.to_string()),
            TokenTree::Punct(punct) => TokenKind::Punct(punct.as_char()),
            TokenTree::Literal(_) => TokenKind::Literal,
            TokenTree::Group(group) => {
                tokens.push(Token { kind: TokenKind::Open(group.delimiter()), line });
                append(group.stream(), tokens);
                tokens.push(Token { kind: TokenKind::Close, line: group.span_close().start().line });
                continue;
            }
        };
        tokens.push(Token { kind, line });
    }
}

/// Whether a path `a::b::c` starts at the head of `tokens`.
pub(crate) fn starts_with_path(tokens: &[Token], path: &[&str]) -> bool {
    let mut rest = tokens;
    for (index, name) in path.iter().enumerate() {
        if index > 0 {
            let [colon, second, tail @ ..] = rest else { return false };
            if colon.kind != TokenKind::Punct(':') || second.kind != TokenKind::Punct(':') {
                return false;
            }
            rest = tail;
        }
        match rest.split_first() {
            Some((head, tail)) if head.is(name) => rest = tail,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        flatten(text.parse().expect("the snippet is Rust"))
    }

    #[test]
    fn macros_are_opened_and_texts_are_not() {
        let tokens = tokens("assert!(a::b(), \"c::d\"); // e\n f");
        let idents: Vec<_> = ["assert", "a", "b", "c", "e", "f"]
            .map(|name| tokens.iter().find(|token| token.is(name)).map(|token| token.line))
            .into();
        assert_eq!(idents, [Some(1), Some(1), Some(1), None, None, Some(2)]);
    }

    #[test]
    fn a_path_is_found_at_the_head_only() {
        let tokens = tokens("std::thread::sleep(x)");
        assert!(!starts_with_path(&tokens, &["thread", "sleep"]));
        assert!(starts_with_path(&tokens[3..], &["thread", "sleep"]));
        assert!(!starts_with_path(&tokens[3..], &["thread", "sleep", "x"]));
    }
}
