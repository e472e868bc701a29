//! Tests types against a naive model that lists every basic element of the type map with its address.

use datatypes::{Basic, Datatype, Distribution, Memory, Order, Run};
use proptest::prelude::*;

/// A type as the standard defines it: basic types at displacements, and explicitly set bounds.
#[derive(Clone, Debug)]
struct Model {
    map: Vec<(Basic, i64)>,
    /// All lower and upper bounds that were set.
    marks: Vec<(i64, i64)>,
    /// The ends of parts, including their padding.
    ends: Vec<i64>,
}

/// Basic types other than pairs, from 1 to 16 bytes.
const BASICS: [Basic; 6] =
    [Basic::Byte, Basic::Short, Basic::Int, Basic::Double, Basic::LongDouble, Basic::CDoubleComplex];

impl Model {
    fn of(basic: Basic) -> Self {
        match basic {
            Basic::ShortInt => {
                Self { map: vec![(Basic::Short, 0), (Basic::Int, 4)], marks: vec![], ends: vec![] }
            }
            Basic::DoubleInt => {
                Self { map: vec![(Basic::Double, 0), (Basic::Int, 8)], marks: vec![], ends: vec![] }
            }
            _ => Self { map: vec![(basic, 0)], marks: vec![], ends: vec![] },
        }
    }

    fn align(basic: Basic) -> i64 {
        if basic == Basic::CDoubleComplex { 8 } else { i64::from(basic.size()) }
    }

    fn end(&(basic, at): &(Basic, i64)) -> i64 {
        at + i64::from(basic.size())
    }

    fn lb(&self) -> i64 {
        let marked = self.marks.iter().map(|mark| mark.0).min();
        marked.or(self.map.iter().map(|entry| entry.1).min()).unwrap_or(0)
    }

    fn ub(&self) -> i64 {
        if let Some(ub) = self.marks.iter().map(|mark| mark.1).max() {
            return ub;
        }
        let parts = self.ends.iter().copied();
        let Some(end) = parts.chain(self.map.iter().map(Self::end)).max() else { return 0 };
        let align = self.map.iter().map(|entry| Self::align(entry.0)).max().unwrap_or(1);
        (end..).find(|ub| (ub - self.lb()) % align == 0).expect("one of the next few")
    }

    fn extent(&self) -> i64 {
        self.ub() - self.lb()
    }

    fn at(&self, by: i64) -> Self {
        Self {
            map: self.map.iter().map(|&(basic, at)| (basic, at + by)).collect(),
            marks: self.marks.iter().map(|&(lb, ub)| (lb + by, ub + by)).collect(),
            ends: self.ends.iter().map(|end| end + by).collect(),
        }
    }

    /// Blocks of elements at displacements in bytes, in order.
    fn blocks<'a>(blocks: impl IntoIterator<Item = (i64, i64, &'a Self)>) -> Self {
        let mut all = Self { map: vec![], marks: vec![], ends: vec![] };
        for (length, displacement, old) in blocks {
            for i in 0..length {
                let one = old.at(displacement + i * old.extent());
                let is_padded = one.marks.is_empty() && !one.map.is_empty();
                all.ends.extend(is_padded.then(|| one.ub()));
                all.map.extend(one.map);
                all.ends.extend(one.ends);
                all.marks.extend(one.marks);
            }
        }
        all
    }

    /// The address of every byte of `count` elements, in order.
    fn bytes(&self, count: i64) -> Vec<i64> {
        let all = Self::blocks([(count, 0, self)]);
        all.map.iter().flat_map(|entry| entry.1..Self::end(entry)).collect()
    }
}

/// A type and its model.
type TypeAndModel = (Datatype, Model);

fn leaf() -> impl Strategy<Value = TypeAndModel> {
    let basics: Vec<Basic> = BASICS.into_iter().chain([Basic::ShortInt, Basic::DoubleInt]).collect();
    prop::sample::select(basics).prop_map(|basic| (Datatype::from(basic), Model::of(basic)))
}

fn list(old: TypeAndModel, at: Vec<(i64, i64)>, how: u8) -> TypeAndModel {
    let (datatype, model) = old;
    let lengths: Vec<i64> = at.iter().map(|block| block.0).collect();
    let displacements: Vec<i64> = at.iter().map(|block| block.1).collect();
    let same = lengths.first().copied().unwrap_or(1);
    let made = match how {
        0 => Datatype::indexed(&lengths, &displacements, &datatype),
        1 => Datatype::hindexed(&lengths, &displacements, &datatype),
        2 => Datatype::indexed_block(same, &displacements, &datatype),
        _ => Datatype::hindexed_block(same, &displacements, &datatype),
    };
    let unit = if how.is_multiple_of(2) { model.extent() } else { 1 };
    let length = |block: &(i64, i64)| if how < 2 { block.0 } else { same };
    let blocks = at.iter().map(|block| (length(block), block.1 * unit, &model));
    (made.expect("small numbers"), Model::blocks(blocks))
}

fn vector(old: TypeAndModel, count: i64, length: i64, stride: i64, bytes: bool) -> TypeAndModel {
    let (datatype, model) = old;
    let (made, unit) = if bytes {
        (Datatype::hvector(count, length, stride, &datatype), 1)
    } else {
        (Datatype::vector(count, length, stride, &datatype), model.extent())
    };
    (made.expect("small numbers"), Model::blocks((0..count).map(|i| (length, i * stride * unit, &model))))
}

fn any_type() -> impl Strategy<Value = TypeAndModel> {
    let small = -5_i64..6;
    leaf().prop_recursive(3, 12, 3, move |inner| {
        let small = small.clone();
        prop_oneof![
            (inner.clone(), 0_i64..4).prop_map(|((datatype, model), n)| {
                (Datatype::contiguous(n, &datatype).expect("small"), Model::blocks([(n, 0, &model)]))
            }),
            (inner.clone(), 0_i64..4, 0_i64..4, -40_i64..40, any::<bool>())
                .prop_map(|(old, count, length, stride, bytes)| vector(old, count, length, stride, bytes)),
            (inner.clone(), prop::collection::vec((0_i64..4, -20_i64..20), 0..5), 0_u8..4)
                .prop_map(|(old, at, how)| list(old, at, how)),
            prop::collection::vec((inner.clone(), 0_i64..3, -60_i64..60), 0..4).prop_map(|fields| {
                let lengths: Vec<i64> = fields.iter().map(|field| field.1).collect();
                let displacements: Vec<i64> = fields.iter().map(|field| field.2).collect();
                let types: Vec<Datatype> = fields.iter().map(|field| field.0.0.clone()).collect();
                let made = Datatype::structure(&lengths, &displacements, &types).expect("small");
                (made, Model::blocks(fields.iter().map(|field| (field.1, field.2, &field.0.1))))
            }),
            (inner.clone(), small, -50_i64..50).prop_map(|((datatype, model), lb, extent)| {
                let made = Datatype::resized(&datatype, lb, extent).expect("small");
                (made, Model { map: model.map, marks: vec![(lb, lb + extent)], ends: model.ends })
            }),
            inner.prop_map(|(datatype, model)| (Datatype::duplicate(&datatype), model)),
        ]
    })
}

/// Memory at addresses from -`ORIGIN` on, in which neighbouring bytes differ.
struct Arena {
    bytes: Vec<u8>,
}

const ORIGIN: i64 = 1 << 16;

impl Arena {
    fn numbered() -> Self {
        Self { bytes: (0..2 * ORIGIN as usize).map(|at| (at % 251) as u8).collect() }
    }

    fn at(&self, address: i64) -> u8 {
        self.bytes[(address + ORIGIN) as usize]
    }
}

impl Memory for Arena {
    fn load(&self, offset: i64, into: &mut [u8]) {
        let at = (offset + ORIGIN) as usize;
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
    }

    fn store(&mut self, offset: i64, from: &[u8]) {
        let at = (offset + ORIGIN) as usize;
        self.bytes[at..at + from.len()].copy_from_slice(from);
    }
}

/// Whether all bytes of `count` elements fit in an [`Arena`]: nested types with large gaps may not.
fn fits(datatype: &Datatype, count: i64) -> bool {
    let span = datatype.span(count).expect("small");
    -ORIGIN <= span.start && span.end <= ORIGIN
}

/// Runs made from the addresses of all bytes: a new one where an address does not follow the one before.
fn merged(addresses: &[i64]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &address in addresses {
        match runs.last_mut() {
            Some(last) if last.offset + last.length as i64 == address => last.length += 1,
            _ => runs.push(Run { offset: address, length: 1 }),
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bounds_are_those_of_the_type_map((datatype, model) in any_type()) {
        prop_assert_eq!(datatype.size(), model.map.iter().map(|entry| i64::from(entry.0.size())).sum::<i64>());
        prop_assert_eq!((datatype.lb(), datatype.ub()), (model.lb(), model.ub()));
        prop_assert_eq!(datatype.extent(), model.extent());
        let first = model.map.iter().map(|entry| entry.1).min().unwrap_or(0);
        let end = model.map.iter().map(Model::end).max().unwrap_or(0);
        prop_assert_eq!((datatype.true_lb(), datatype.true_ub(), datatype.true_extent()), (first, end, end - first));
    }

    #[test]
    fn runs_are_the_bytes_of_the_type_map((datatype, model) in any_type(), count in 0_i64..4) {
        let bytes = model.bytes(count);
        let expected = merged(&bytes);
        prop_assert_eq!(datatype.runs(count).expect("small").collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!(datatype.bytes(count), Ok(bytes.len() as u64));
        let span = datatype.span(count).expect("small");
        prop_assert_eq!(span.start, bytes.iter().copied().min().unwrap_or(0));
        prop_assert_eq!(span.end, bytes.iter().map(|at| at + 1).max().unwrap_or(0));
        if let Some(run) = datatype.single_run(count) {
            prop_assert_eq!(vec![run], expected);
        }
    }

    #[test]
    fn cursors_pack_and_unpack_from_anywhere(
        (datatype, model) in any_type(),
        count in 0_i64..4,
        cuts in prop::collection::vec((0_u64..400, 0_usize..90), 1..6),
    ) {
        prop_assume!(fits(&datatype, count));
        let (addresses, arena) = (model.bytes(count), Arena::numbered());
        let packed: Vec<u8> = addresses.iter().map(|&at| arena.at(at)).collect();
        let mut cursor = datatype.cursor(count).expect("small");
        for (position, length) in cuts {
            cursor.seek(position);
            let start = (position as usize).min(packed.len());
            prop_assert_eq!((cursor.position(), cursor.total()), (start as u64, packed.len() as u64));
            let end = (start + length).min(packed.len());
            let mut part = vec![0; length];
            prop_assert_eq!(cursor.pack(&arena, &mut part), end - start);
            prop_assert_eq!(&part[..end - start], &packed[start..end]);
            // It continues where it stopped.
            let mut one = [0];
            let more = cursor.pack(&arena, &mut one);
            prop_assert_eq!(&one[..more], &packed[end..(end + 1).min(packed.len())]);
            cursor.seek(start as u64);
            let mut out = Arena { bytes: vec![0; 2 * ORIGIN as usize] };
            let noise: Vec<u8> = (0..length).map(|i| i as u8 ^ 0x5a).collect();
            prop_assert_eq!(cursor.unpack(&noise, &mut out), end - start);
            let mut expected = vec![0; 2 * ORIGIN as usize];
            for (at, byte) in addresses[start..end].iter().zip(&noise) {
                expected[(at + ORIGIN) as usize] = *byte;
            }
            prop_assert!(out.bytes == expected);
            prop_assert_eq!(cursor.remaining(), (packed.len() - end) as u64);
        }
    }

    #[test]
    fn runs_are_limited_to_the_requested_sizes((datatype, model) in any_type(), count in 0_i64..4, most in 1_u64..20) {
        let mut cursor = datatype.cursor(count).expect("small");
        let mut addresses = Vec::new();
        while let Some(run) = cursor.next_run(most) {
            prop_assert!((1..=most).contains(&run.length));
            addresses.extend(run.offset..run.offset + run.length as i64);
        }
        prop_assert_eq!(addresses, model.bytes(count));
        prop_assert_eq!(cursor.remaining(), 0);
    }

    #[test]
    fn elements_of_partial_data_are_counted((datatype, model) in any_type(), bytes in 0_u64..300) {
        let size = datatype.size() as u64;
        let (mut left, mut elements) = (bytes, 0);
        let sizes = model.map.iter().cycle().map(|entry| u64::from(entry.0.size()));
        for each in sizes.take_while(|_| size > 0) {
            if left < each {
                break;
            }
            left -= each;
            elements += 1;
        }
        let expected = (left == 0).then_some(elements);
        prop_assert_eq!(datatype.elements_in(bytes), expected);
        if let (Some(elements), true) = (expected, size > 0) {
            prop_assert_eq!(datatype.bytes_of_elements(elements), Some(bytes));
        }
        let whole = if size == 0 { (bytes == 0).then_some(0) } else { bytes.is_multiple_of(size).then(|| (bytes / size) as i64) };
        prop_assert_eq!(datatype.count_in(bytes), whole);
    }

    #[test]
    fn signatures_are_sequences((one, first) in any_type(), (two, second) in any_type(), n in 0_i64..3, m in 0_i64..3) {
        let sequence = |model: &Model, count: i64| {
            let basics: Vec<Basic> = model.map.iter().map(|entry| entry.0).collect();
            basics.repeat(count as usize)
        };
        let equal = sequence(&first, n) == sequence(&second, m);
        prop_assert_eq!(one.signature(n) == two.signature(m), equal);
        prop_assert_eq!(one.signature(n).map(|s| s.elements), Some(n as u64 * first.map.len() as u64));
    }

    #[test]
    fn external32_is_unpacked_to_the_same_values((datatype, _) in any_type(), count in 0_i64..3) {
        prop_assume!(fits(&datatype, count));
        let fill = if holds_long_double(&datatype) { 0 } else { 0x11 };
        let mut source = Arena { bytes: vec![0; 2 * ORIGIN as usize] };
        for run in datatype.runs(count).expect("small") {
            source.store(run.offset, &vec![fill; run.length as usize]);
        }
        let mut external = vec![7];
        datatype.pack_external32(count, &source, &mut external).expect("no number is too large");
        prop_assert_eq!(external.len() as u64, 1 + datatype.external32_size(count).expect("small"));
        let mut back = Arena { bytes: vec![0; 2 * ORIGIN as usize] };
        prop_assert_eq!(datatype.unpack_external32(count, &external[1..], &mut back), Ok(external.len() - 1));
        prop_assert!(back.bytes == source.bytes);
    }
}

/// Whether it contains a long double: not every bit pattern survives a conversion.
fn holds_long_double(datatype: &Datatype) -> bool {
    match datatype.contents() {
        Ok(contents) => contents.datatypes.iter().any(holds_long_double),
        Err(_) => datatype.basic() == Some(Basic::LongDouble),
    }
}

/// Every element of an array of these sizes, as coordinates and address, in memory order.
fn cells(sizes: &[i64], order: Order) -> Vec<(Vec<i64>, i64)> {
    let total: i64 = sizes.iter().product();
    let coordinates = |mut place: i64| {
        let mut found = vec![0; sizes.len()];
        let dims: Vec<usize> =
            if order == Order::C { (0..sizes.len()).rev().collect() } else { (0..sizes.len()).collect() };
        for dim in dims {
            found[dim] = place % sizes[dim];
            place /= sizes[dim];
        }
        found
    };
    (0..total).map(|place| (coordinates(place), place)).collect()
}

fn either_order() -> impl Strategy<Value = Order> {
    prop::sample::select(vec![Order::C, Order::Fortran])
}

proptest! {
    #[test]
    fn a_subarray_contains_its_cells(
        dims in prop::collection::vec((1_i64..6, 0_i64..6, 0_i64..6), 1..4),
        order in either_order(),
    ) {
        let sizes: Vec<i64> = dims.iter().map(|dim| dim.0).collect();
        let subsizes: Vec<i64> = dims.iter().map(|dim| 1 + dim.1 % dim.0).collect();
        let starts: Vec<i64> = dims.iter().zip(&subsizes).map(|(dim, sub)| dim.2 % (dim.0 - sub + 1)).collect();
        let datatype = Datatype::subarray(&sizes, &subsizes, &starts, order, &Basic::Short.into()).expect("legal");
        let inside = |cell: &[i64]| {
            (0..cell.len()).all(|dim| (starts[dim]..starts[dim] + subsizes[dim]).contains(&cell[dim]))
        };
        let cells = cells(&sizes, order).into_iter().filter(|(cell, _)| inside(cell));
        let addresses: Vec<i64> = cells.flat_map(|(_, place)| [2 * place, 2 * place + 1]).collect();
        prop_assert_eq!(datatype.runs(1).expect("small").collect::<Vec<_>>(), merged(&addresses));
        prop_assert_eq!((datatype.lb(), datatype.ub()), (0, 2 * sizes.iter().product::<i64>()));
    }

    #[test]
    fn each_cell_of_a_darray_belongs_to_one_process(
        dims in prop::collection::vec((1_i64..8, 1_i64..4, 0_u8..5, 1_i64..4), 1..4),
        order in either_order(),
    ) {
        let mut how = Vec::new();
        for &(size, processes, choice, argument) in &dims {
            how.push(match choice {
                0 => (Distribution::None, None, 1, size),
                1 => (Distribution::Block, None, processes, (size + processes - 1) / processes),
                2 => {
                    let length = (size + processes - 1) / processes + argument - 1;
                    (Distribution::Block, Some(length), processes, length)
                }
                3 => (Distribution::Cyclic, None, processes, 1),
                _ => (Distribution::Cyclic, Some(argument), processes, argument),
            });
        }
        let sizes: Vec<i64> = dims.iter().map(|dim| dim.0).collect();
        let grid: Vec<i64> = how.iter().map(|dim| dim.2).collect();
        let distributions: Vec<Distribution> = how.iter().map(|dim| dim.0).collect();
        let arguments: Vec<Option<i64>> = how.iter().map(|dim| dim.1).collect();
        let size: i64 = grid.iter().product();
        let owner = |cell: &[i64]| {
            (0..cell.len()).fold(0, |rank, dim| rank * grid[dim] + cell[dim] / how[dim].3 % grid[dim])
        };
        for rank in 0..size {
            let old = Datatype::from(Basic::Short);
            let made = Datatype::darray(size, rank, &sizes, &distributions, &arguments, &grid, order, &old);
            let datatype = made.expect("legal");
            let mine = cells(&sizes, order).into_iter().filter(|(cell, _)| owner(cell) == rank);
            let addresses: Vec<i64> = mine.flat_map(|(_, place)| [2 * place, 2 * place + 1]).collect();
            prop_assert_eq!(datatype.runs(1).expect("small").collect::<Vec<_>>(), merged(&addresses), "rank {}", rank);
            prop_assert_eq!((datatype.lb(), datatype.ub()), (0, 2 * sizes.iter().product::<i64>()));
        }
    }
}
