//! [`View`]: the bytes of a file that a process sees, and their order (MPI 5.0, section 14.3). No input or output.

use datatypes::{Cursor, Datatype};

use crate::error::{Class, Error, Result};
use crate::io::representation::Representation;

/// A contiguous range of bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRange {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl FileRange {
    /// The end of the range.
    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }
}

/// A process's view of a file: the data of consecutive filetypes, from a displacement on. Offsets count in etypes.
#[derive(Clone, Debug)]
pub struct View {
    displacement: u64,
    etype: Datatype,
    filetype: Datatype,
    representation: Representation,
    /// Bytes of an etype in the file.
    etype_size: u64,
    tile: FileTile,
}

/// The layout of one filetype in the file.
#[derive(Clone, Debug)]
enum FileTile {
    /// Contiguous: all bytes from `first` on are visible.
    Dense { first: u64 },
    /// With gaps: `bytes` of every `extent`, from `first` to `end`. If `end - first` exceeds the extent, consecutive filetypes
    /// interleave.
    Gaps { start: Cursor, bytes: u64, extent: u64, first: u64, end: u64 },
}

fn arg_error(text: impl std::fmt::Display) -> Error {
    Error::new(Class::ARG, text)
}

impl View {
    /// A view from byte `displacement` on.
    ///
    /// # Errors
    /// [`Class::ARG`] for a negative displacement, for a filetype that does not consist of whole etypes, and for a filetype with
    /// negative or descending displacements; [`Class::TYPE`] for types that are not committed; [`Class::CONVERSION`].
    pub fn new(
        displacement: i64,
        etype: Datatype,
        filetype: Datatype,
        representation: Representation,
    ) -> Result<Self> {
        let displacement = u64::try_from(displacement)
            .map_err(|_| arg_error(format_args!("a displacement of {displacement} is negative")))?;
        if !etype.is_committed() || !filetype.is_committed() {
            return Err(Error::new(Class::TYPE, "a datatype of the view is not committed"));
        }
        let etype_size = representation.file_type(&etype)?.size() as u64;
        let layout = representation.file_type(&filetype)?;
        if etype_size == 0 || layout.size() == 0 || !(layout.size() as u64).is_multiple_of(etype_size) {
            let text =
                format!("a filetype of {} bytes does not consist of etypes of {etype_size}", layout.size());
            return Err(arg_error(text));
        }
        let tile = FileTile::new(&layout)?;
        Ok(Self { displacement, etype, filetype, representation, etype_size, tile })
    }

    /// Its start in the file.
    pub fn displacement(&self) -> i64 {
        self.displacement as i64
    }

    /// The unit of offsets.
    pub fn etype(&self) -> &Datatype {
        &self.etype
    }

    /// The repeated pattern.
    pub fn filetype(&self) -> &Datatype {
        &self.filetype
    }

    /// The data representation in the file.
    pub fn representation(&self) -> &Representation {
        &self.representation
    }

    /// Bytes of an etype in the file.
    pub(crate) fn etype_size(&self) -> u64 {
        self.etype_size
    }

    /// The offset in the file of the etype with this number.
    ///
    /// # Errors
    /// As [`View::view_bytes_before`] and [`View::check_range`].
    pub(crate) fn byte_offset_of(&self, etypes: i64) -> Result<u64> {
        let from = self.view_bytes_before(etypes)?;
        self.check_range(from, 1)?;
        Ok(self.pieces(from, 1).next().map_or(self.displacement, |piece| piece.offset))
    }

    /// Bytes of the view before the etype with this number.
    pub(crate) fn view_bytes_before(&self, etypes: i64) -> Result<u64> {
        let number = u64::try_from(etypes)
            .map_err(|_| arg_error(format_args!("an offset of {etypes} is negative")))?;
        number
            .checked_mul(self.etype_size)
            .ok_or_else(|| arg_error(format_args!("etype {etypes} is beyond the largest file")))
    }

    /// Checks that `len` bytes of the view, from `from` on, have ascending offsets that a file can have.
    ///
    /// # Errors
    /// [`Class::ARG`] unless they have.
    pub(crate) fn check_range(&self, from: u64, len: u64) -> Result<()> {
        let beyond = || {
            arg_error(format_args!("{len} bytes from byte {from} of the view are beyond the largest file"))
        };
        let end = from.checked_add(len).ok_or_else(beyond)?;
        let end = match &self.tile {
            FileTile::Dense { first } => end.checked_add(*first),
            FileTile::Gaps { bytes, extent, first, end: of_tile, .. } => {
                let last = end.saturating_sub(1) / bytes;
                if first + extent < *of_tile && from / bytes < last {
                    let text = format!("a filetype of {extent} bytes, whose data span {}", of_tile - first);
                    return Err(arg_error(format_args!("{text}, can be used only once in an access")));
                }
                last.checked_mul(*extent).and_then(|base| base.checked_add(*of_tile))
            }
        };
        let end = end.and_then(|end| end.checked_add(self.displacement));
        end.filter(|end| i64::try_from(*end).is_ok()).map(drop).ok_or_else(beyond)
    }

    /// The pieces of the file for `len` bytes of the view, from `from` on, for bytes that pass [`View::check_range`]; merged and
    /// ascending.
    pub(crate) fn pieces(&self, from: u64, len: u64) -> FileRanges {
        match &self.tile {
            FileTile::Dense { first } => {
                let offset = self.displacement + first + from;
                FileRanges { tiles: None, left: 0, open: (len > 0).then_some(FileRange { offset, len }) }
            }
            FileTile::Gaps { start, bytes, extent, .. } => {
                let mut cursor = start.clone();
                cursor.seek(from % bytes);
                let base = self.displacement + from / bytes * extent;
                let mut pieces = FileRanges {
                    tiles: Some(Tiles { cursor, base, extent: *extent }),
                    left: len,
                    open: None,
                };
                pieces.open = pieces.next_run();
                pieces
            }
        }
    }

    /// Number of the view's bytes before an offset of the file.
    pub(crate) fn bytes_before(&self, end: u64) -> u64 {
        let rest = end.saturating_sub(self.displacement);
        match &self.tile {
            FileTile::Dense { first } => rest.saturating_sub(*first),
            FileTile::Gaps { start, bytes, extent, end, .. } => {
                let whole = rest.checked_sub(*end).map_or(0, |past_last| past_last / extent + 1);
                // The last complete filetype may end before its extent does.
                let rest = rest.saturating_sub(whole * extent);
                let (mut cursor, mut partly) = (start.clone(), 0);
                while let Some(run) = cursor.next_run(u64::MAX) {
                    partly += run.length.min(rest.saturating_sub(run.offset as u64));
                }
                whole * bytes + partly
            }
        }
    }
}

impl FileTile {
    fn new(layout: &Datatype) -> Result<Self> {
        let extent =
            u64::try_from(layout.extent()).map_err(|_| arg_error("a filetype's extent is negative"))?;
        let start = layout.cursor(1).map_err(|error| arg_error(error.text))?;
        let (mut runs, mut first, mut end) = (start.clone(), None, 0);
        while let Some(run) = runs.next_run(u64::MAX) {
            if run.offset < end {
                return Err(arg_error("displacements in a filetype must be neither negative nor descending"));
            }
            first = first.or(Some(run.offset as u64));
            end = run.offset + run.length as i64;
        }
        let (first, end, bytes) = (first.unwrap_or(0), end as u64, start.total());
        if extent == 0 {
            return Err(arg_error("a filetype's extent is 0"));
        }
        let is_dense = bytes == extent && bytes == end - first;
        Ok(if is_dense { Self::Dense { first } } else { Self::Gaps { start, bytes, extent, first, end } })
    }
}

/// An iterator over the pieces of a view's bytes.
#[derive(Clone, Debug)]
pub(crate) struct FileRanges {
    tiles: Option<Tiles>,
    /// Bytes not yet added to `open`.
    left: u64,
    /// The piece under construction, which the next run may extend.
    open: Option<FileRange>,
}

#[derive(Clone, Debug)]
struct Tiles {
    cursor: Cursor,
    /// The offset in the file of this filetype.
    base: u64,
    extent: u64,
}

impl FileRanges {
    fn next_run(&mut self) -> Option<FileRange> {
        let tiles = self.tiles.as_mut().filter(|_| self.left > 0)?;
        if tiles.cursor.remaining() == 0 {
            tiles.cursor.seek(0);
            tiles.base += tiles.extent;
        }
        let run = tiles.cursor.next_run(self.left)?;
        self.left -= run.length;
        Some(FileRange { offset: tiles.base + run.offset as u64, len: run.length })
    }
}

impl Iterator for FileRanges {
    type Item = FileRange;

    fn next(&mut self) -> Option<FileRange> {
        let mut whole = self.open.take()?;
        while let Some(run) = self.next_run() {
            if run.offset != whole.end() {
                self.open = Some(run);
                break;
            }
            whole.len += run.len;
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::{Basic, Order};
    use proptest::prelude::*;

    fn view(displacement: i64, etype: Basic, filetype: Datatype) -> Result<View> {
        filetype.commit();
        View::new(displacement, etype.into(), filetype, Representation::Native)
    }

    /// Goal: pieces, offsets and ends match a list of all bytes. Method: the list is built by walking the filetype's runs as often
    /// as needed, one byte at a time.
    fn hold_to_bytes(displacement: i64, blocks: &[(i64, i64)], tail: i64, from: u64, len: u64) {
        let (mut at, mut lengths, mut places) = (0, Vec::new(), Vec::new());
        for (gap, length) in blocks {
            places.push(4 * (at + gap));
            lengths.push(*length);
            at += gap + length;
        }
        let blocks = Datatype::hindexed(&lengths, &places, &Basic::Int.into()).expect("a type");
        let filetype = Datatype::resized(&blocks, 0, 4 * (at + tail)).expect("a type");
        let mut tile = vec![false; 4 * (at + tail) as usize];
        for (place, length) in places.iter().zip(&lengths) {
            tile[*place as usize..(place + 4 * length) as usize].fill(true);
        }
        let seen = |n: usize| tile[n % tile.len()];
        let all: Vec<u64> =
            (0..).filter(|n| seen(*n)).take((from + len) as usize + 1).map(|n| n as u64).collect();
        let view = view(displacement, Basic::Int, filetype).expect("ascending");
        let (start, want) = (displacement as u64, &all[from as usize..(from + len) as usize]);
        let pieces: Vec<FileRange> = view.pieces(from, len).collect();
        let bytes: Vec<u64> = pieces.iter().flat_map(|piece| piece.offset..piece.end()).collect();
        assert_eq!(bytes, want.iter().map(|byte| byte + start).collect::<Vec<_>>());
        assert!(pieces.windows(2).all(|two| two[0].end() < two[1].offset), "merged: {pieces:?}");
        for n in (0..all.len()).step_by(4) {
            assert_eq!(view.byte_offset_of(n as i64 / 4), Ok(all[n] + start));
        }
        for end in 0..all[all.len() - 1] {
            let before = all.iter().take_while(|byte| **byte < end).count() as u64;
            assert_eq!(view.bytes_before(start + end), before, "before {end}");
        }
        assert_eq!(view.bytes_before(start / 2), 0);
    }

    proptest! {
        #[test]
        fn views_agree_with_list_of_bytes(
            displacement in 0_i64..9,
            blocks in prop::collection::vec((0_i64..3, 1_i64..4), 1..5),
            tail in 0_i64..3,
            from in 0_u64..70,
            len in 0_u64..90,
        ) {
            hold_to_bytes(displacement, &blocks, tail, from, len);
        }
    }

    #[test]
    fn invalid_views_are_errors() {
        let int = || Datatype::from(Basic::Int);
        let class = |view: Result<View>| view.map(drop).map_err(|error| error.class);
        assert_eq!(class(view(-1, Basic::Int, int())), Err(Class::ARG));
        assert_eq!(class(view(0, Basic::Double, int())), Err(Class::ARG));
        let hindexed =
            |places: &[i64]| Datatype::hindexed(&vec![1; places.len()], places, &int()).expect("a type");
        assert_eq!(class(view(0, Basic::Int, hindexed(&[8, 0]))), Err(Class::ARG), "descending");
        assert_eq!(class(view(0, Basic::Int, hindexed(&[-4]))), Err(Class::ARG), "negative");
        assert_eq!(class(view(0, Basic::Int, hindexed(&[]))), Err(Class::ARG), "no data");
        let none = Datatype::resized(&hindexed(&[0, 8]), 0, 0).expect("a type");
        assert_eq!(class(view(0, Basic::Int, none)), Err(Class::ARG), "no extent");
        let raw = Datatype::contiguous(2, &int()).expect("a type");
        assert_eq!(class(View::new(0, int(), raw, Representation::Native)), Err(Class::TYPE));
    }

    #[test]
    fn view_beyond_the_largest_file_is_an_error() {
        let far = view(i64::MAX - 8, Basic::Int, Basic::Int.into()).expect("in a file");
        assert!(far.check_range(0, 8).is_ok() && far.check_range(4, 4).is_ok());
        assert_eq!(far.check_range(4, 5).map_err(|error| error.class), Err(Class::ARG));
        assert_eq!(far.byte_offset_of(2).map_err(|error| error.class), Err(Class::ARG));
        assert_eq!(far.byte_offset_of(-1).map_err(|error| error.class), Err(Class::ARG));
        let gaps = Datatype::resized(&Basic::Int.into(), 0, 1 << 60).expect("a type");
        let gaps = view(0, Basic::Int, gaps).expect("in a file");
        assert!(
            gaps.check_range(0, 32).is_ok()
                && gaps.check_range(0, 33).is_err()
                && gaps.check_range(u64::MAX, 1).is_err()
        );
    }

    /// Goal: a filetype whose bounds exclude some of its data works, if accessed once. Method: the file view of PnetCDF's first
    /// rank, a header followed by a part of an array, whose bounds are set to those of the whole array.
    #[test]
    fn filetype_bounds_may_exclude_data() {
        let part =
            Datatype::subarray(&[2, 4], &[2, 1], &[0, 3], Order::C, &Basic::Int.into()).expect("a type");
        let both = Datatype::structure(&[16, 1], &[0, 64], &[Basic::Byte.into(), part]).expect("a type");
        assert_eq!(
            (both.lb(), both.extent()),
            (64, 32),
            "so that the second begins before the first has ended"
        );
        let view = view(0, Basic::Byte, both).expect("ascending");
        let pieces =
            |from, len| view.pieces(from, len).map(|piece| (piece.offset, piece.len)).collect::<Vec<_>>();
        assert_eq!(pieces(0, 24), [(0, 16), (76, 4), (92, 4)]);
        assert_eq!(pieces(18, 4), [(78, 2), (92, 2)]);
        assert_eq!(pieces(24, 17), [(32, 16), (108, 1)]);
        assert!(
            view.check_range(0, 24).is_ok()
                && view.check_range(24, 24).is_ok()
                && view.check_range(24, 0).is_ok()
        );
        assert_eq!(view.check_range(23, 2).map_err(|error| error.class), Err(Class::ARG));
        assert_eq!([0, 16, 78, 96].map(|end| view.bytes_before(end)), [0, 16, 18, 40]);
    }

    #[test]
    fn data_with_gaps_may_be_as_long_as_the_extent() {
        let places = Datatype::hindexed(&[1, 1], &[0, 8], &Basic::Int.into()).expect("a type");
        let view = view(0, Basic::Int, Datatype::resized(&places, 0, 8).expect("a type")).expect("ascending");
        assert_eq!(view.pieces(0, 8).map(|piece| piece.offset).collect::<Vec<_>>(), [0, 8]);
    }
}
