//! Tests every constructor: its envelope and contents in both forms, and the arguments that it refuses.

use datatypes::{Basic, Combiner, Datatype, Distribution, Envelope, ErrorKind, Order, Result};

fn int() -> Datatype {
    Basic::Int.into()
}

/// The lists of the contents, with the datatypes by name.
fn lists(datatype: &Datatype) -> (Vec<i64>, Vec<i64>, Vec<i64>, Vec<String>) {
    let contents = datatype.contents().expect("a type that was made");
    let names = contents.datatypes.iter().map(|datatype| format!("{datatype:?}")).collect();
    let Envelope { integers, addresses, counts, datatypes, combiner } = datatype.envelope();
    assert_eq!(combiner, datatype.combiner());
    let lengths =
        (contents.integers.len(), contents.addresses.len(), contents.counts.len(), contents.datatypes.len());
    assert_eq!((integers, addresses, counts, datatypes), lengths);
    (contents.integers.clone(), contents.addresses.clone(), contents.counts.clone(), names)
}

/// Checks a constructor's plain and large form.
#[track_caller]
fn check(
    made: Result<Datatype>,
    combiner: Combiner,
    plain: (&[i64], &[i64]),
    large: (&[i64], &[i64]),
    types: &[&str],
) {
    let made = made.expect("legal arguments");
    assert_eq!(made.combiner(), combiner);
    assert_eq!(
        lists(&made),
        (plain.0.to_vec(), plain.1.to_vec(), vec![], types.iter().map(|&t| t.into()).collect())
    );
    let size = made.size();
    let made = made.with_large_counts();
    assert_eq!((made.combiner(), made.size()), (combiner, size));
    assert_eq!(
        lists(&made),
        (large.0.to_vec(), vec![], large.1.to_vec(), types.iter().map(|&t| t.into()).collect())
    );
}

#[test]
fn repeating_constructors() {
    let types = ["MPI_INT"];
    check(Datatype::contiguous(5, &int()), Combiner::Contiguous, (&[5], &[]), (&[], &[5]), &types);
    check(
        Datatype::vector(2, 3, -4, &int()),
        Combiner::Vector,
        (&[2, 3, -4], &[]),
        (&[], &[2, 3, -4]),
        &types,
    );
    check(
        Datatype::hvector(2, 3, -7, &int()),
        Combiner::Hvector,
        (&[2, 3], &[-7]),
        (&[], &[2, 3, -7]),
        &types,
    );
    let resized = Datatype::resized(&int(), -8, 32);
    check(resized, Combiner::Resized, (&[], &[-8, 32]), (&[], &[-8, 32]), &types);
    check(Ok(Datatype::duplicate(&int())), Combiner::Dup, (&[], &[]), (&[], &[]), &types);
}

#[test]
fn indexed_constructors() {
    let types = ["MPI_INT"];
    let all = [2, 1, 0, 9, -3];
    check(Datatype::indexed(&[1, 0], &[9, -3], &int()), Combiner::Indexed, (&all, &[]), (&[], &all), &types);
    let plain: (&[i64], &[i64]) = (&[2, 1, 0], &[9, -3]);
    check(Datatype::hindexed(&[1, 0], &[9, -3], &int()), Combiner::Hindexed, plain, (&[], &all), &types);
    let all = [2, 4, 9, -3];
    check(
        Datatype::indexed_block(4, &[9, -3], &int()),
        Combiner::IndexedBlock,
        (&all, &[]),
        (&[], &all),
        &types,
    );
    let plain: (&[i64], &[i64]) = (&[2, 4], &[9, -3]);
    check(Datatype::hindexed_block(4, &[9, -3], &int()), Combiner::HindexedBlock, plain, (&[], &all), &types);
    let fields = [int(), Basic::Double.into()];
    let made = Datatype::structure(&[3, 1], &[0, 16], &fields);
    check(
        made,
        Combiner::Struct,
        (&[2, 3, 1], &[0, 16]),
        (&[], &[2, 3, 1, 0, 16]),
        &["MPI_INT", "MPI_DOUBLE"],
    );
}

#[test]
fn arrays() {
    let made = Datatype::subarray(&[4, 5], &[2, 3], &[1, 2], Order::Fortran, &int());
    let plain = [2, 4, 5, 2, 3, 1, 2, 15];
    check(made, Combiner::Subarray, (&plain, &[]), (&[2, 15], &[4, 5, 2, 3, 1, 2]), &["MPI_INT"]);
    let how = [Distribution::Cyclic, Distribution::Block];
    let made = Datatype::darray(6, 1, &[7, 8], &how, &[Some(2), None], &[3, 2], Order::C, &int());
    let plain = [6, 1, 2, 7, 8, 18, 17, 2, 19, 3, 2, 12];
    let large: (&[i64], &[i64]) = (&[6, 1, 2, 18, 17, 2, 19, 3, 2, 12], &[7, 8]);
    check(made, Combiner::Darray, (&plain, &[]), large, &["MPI_INT"]);
}

#[test]
fn f90_types_are_committed_and_large_enough() {
    let integer = Datatype::f90_integer(9).expect("four bytes have nine digits");
    assert_eq!((lists(&integer).0, integer.size(), integer.is_committed()), (vec![9], 4, true));
    assert_eq!(Datatype::f90_integer(10).map(|datatype| datatype.size()), Ok(8));
    let real = Datatype::f90_real(Some(7), None).expect("a double has them");
    assert_eq!((lists(&real).0, real.size(), real.combiner()), (vec![7, -32766], 8, Combiner::F90Real));
    let complex = Datatype::f90_complex(None, Some(400)).expect("a quad has them");
    assert_eq!((lists(&complex).0, complex.size()), (vec![-32766, 400], 32));
    for wrong in
        [Datatype::f90_real(None, None), Datatype::f90_real(Some(50), None), Datatype::f90_integer(39)]
    {
        assert_eq!(wrong.map_err(|error| error.kind).err(), Some(ErrorKind::Arg));
    }
}

#[test]
fn value_and_index_make_the_predefined_pair_or_a_new_one() {
    let pair =
        |value: Basic, index: Basic| Datatype::value_index(&value.into(), &index.into()).expect("predefined");
    let basic = |value, index| pair(value, index).and_then(|pair| pair.basic());
    assert_eq!(basic(Basic::Short, Basic::Int), Some(Basic::ShortInt));
    assert_eq!(basic(Basic::Int, Basic::Int), Some(Basic::TwoInt));
    assert!(pair(Basic::Double, Basic::Float).is_none());
    let made = pair(Basic::Double, Basic::Int64).expect("a value and an index");
    assert_eq!(
        (made.combiner(), made.size(), made.extent(), made.is_committed()),
        (Combiner::ValueIndex, 16, 16, true)
    );
    let made = pair(Basic::Int8, Basic::Int64).expect("a value and an index");
    assert_eq!((made.size(), made.extent(), lists(&made).3.len()), (9, 16, 2));
    let derived = Datatype::contiguous(1, &int()).expect("one");
    assert_eq!(
        Datatype::value_index(&derived, &int()).map_err(|error| error.kind).err(),
        Some(ErrorKind::Type)
    );
}

#[test]
fn pairs_have_the_padding_of_c() {
    let sizes = |basic: Basic| {
        let datatype = Datatype::from(basic);
        (datatype.size(), datatype.extent(), datatype.true_extent())
    };
    assert_eq!(sizes(Basic::FloatInt), (8, 8, 8));
    assert_eq!(sizes(Basic::DoubleInt), (12, 16, 12));
    assert_eq!(sizes(Basic::LongInt), (12, 16, 12));
    assert_eq!(sizes(Basic::ShortInt), (6, 8, 8));
    assert_eq!(sizes(Basic::LongDoubleInt), (20, 32, 20));
    assert_eq!(sizes(Basic::TwoDoublePrecision), (16, 16, 16));
}

#[test]
fn predefined_types_have_no_contents() {
    for &basic in Basic::ALL {
        let datatype = Datatype::from(basic);
        assert!(datatype.is_committed());
        assert_eq!(datatype.combiner(), Combiner::Named);
        assert_eq!(datatype.contents().map_err(|error| error.kind).err(), Some(ErrorKind::Type));
        assert!(datatype.is_same_object(&basic.into()));
    }
}

/// Checks the error of a call: its kind, and the argument that it names.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, argument: &str) {
    let error = result.expect_err("illegal arguments");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.text.starts_with(argument), "{error}");
}

#[test]
fn illegal_arguments_are_named() {
    refused(Datatype::contiguous(-1, &int()), ErrorKind::Count, "count: -1 is negative");
    refused(Datatype::vector(1, -2, 3, &int()), ErrorKind::Count, "blocklength: -2");
    refused(
        Datatype::indexed(&[1, -1], &[0, 0], &int()),
        ErrorKind::Count,
        "blocklengths: -1 is negative (at index 1)",
    );
    refused(Datatype::indexed(&[1], &[0, 0], &int()), ErrorKind::Arg, "displacements");
    refused(Datatype::structure(&[1], &[0], &[]), ErrorKind::Arg, "types");
    refused(Datatype::subarray(&[], &[], &[], Order::C, &int()), ErrorKind::Dims, "ndims");
    refused(Datatype::subarray(&[4], &[5], &[0], Order::C, &int()), ErrorKind::Arg, "subsizes");
    refused(Datatype::subarray(&[4], &[2], &[3], Order::C, &int()), ErrorKind::Arg, "starts");
    let darray = |rank, how, argument, processes| {
        Datatype::darray(2, rank, &[10], &[how], &[argument], &[processes], Order::C, &int())
    };
    refused(darray(2, Distribution::Block, None, 2), ErrorKind::Arg, "rank");
    refused(darray(0, Distribution::Block, None, 3), ErrorKind::Arg, "psizes");
    refused(darray(0, Distribution::Block, Some(4), 2), ErrorKind::Arg, "dargs");
    refused(darray(0, Distribution::Cyclic, Some(0), 2), ErrorKind::Arg, "dargs");
    refused(darray(0, Distribution::None, None, 2), ErrorKind::Arg, "psizes");
    refused(int().runs(-1), ErrorKind::Count, "count: -1 is negative");
}

#[test]
fn overflow_of_64_bits_is_an_error() {
    let big = Datatype::contiguous(1 << 40, &int()).expect("4 TiB");
    assert_eq!(big.size(), 1 << 42);
    refused(Datatype::contiguous(1 << 40, &big), ErrorKind::Count, "count");
    refused(Datatype::vector(2, 1, i64::MAX / 2, &int()), ErrorKind::Count, "stride");
    refused(Datatype::hvector(3, 1, i64::MAX / 2, &int()), ErrorKind::Count, "count, blocklength and stride");
    refused(
        Datatype::hindexed(&[1], &[i64::MAX - 2], &int()),
        ErrorKind::Count,
        "blocklengths and displacements",
    );
    refused(
        Datatype::hindexed(&[1, 1], &[i64::MIN, 0], &int()),
        ErrorKind::Count,
        "blocklengths and displacements",
    );
    refused(Datatype::resized(&int(), i64::MAX, 1), ErrorKind::Count, "lb and extent");
    refused(
        Datatype::subarray(&[1 << 40, 1 << 40], &[1, 1], &[0, 0], Order::C, &int()),
        ErrorKind::Count,
        "the sizes",
    );
    refused(big.bytes(1 << 21), ErrorKind::Count, "count");
    refused(big.cursor(1 << 21).map(|_| ()), ErrorKind::Count, "count");
    assert!(big.single_run(1 << 21).is_none());
    // The largest possible stride, and absolute addresses at the limit of 64 bits.
    assert!(Datatype::hvector(2, 1, i64::MAX - 3 - 4, &int()).is_ok());
    let far = Datatype::hindexed(&[1], &[i64::MAX - 4], &int()).expect("four bytes are there");
    assert_eq!(far.runs(1).expect("one").map(|run| run.offset).collect::<Vec<_>>(), [i64::MAX - 4]);
}

#[test]
fn large_patterns_stay_small() {
    let column = Datatype::vector(1 << 20, 1, 3, &int()).expect("a million");
    let plane = Datatype::hvector(1 << 20, 1, 1 << 24, &column).expect("a million millions");
    let mut cursor = plane.cursor(2).expect("addresses fit");
    cursor.seek(cursor.total() / 2 - 4);
    let run = cursor.next_run(64).expect("half is left");
    assert_eq!(run.offset, ((1 << 20) - 1) * (1 << 24) + ((1 << 20) - 1) * 12);
    assert_eq!(run.length, 4);
    assert_eq!(plane.elements_in(cursor.total() / 2), Some(1 << 40));
}

#[test]
fn a_commit_applies_to_all_clones() {
    let made = Datatype::contiguous(2, &int()).expect("two");
    let clone = made.clone();
    assert!(!clone.is_committed());
    made.commit();
    assert!(clone.is_committed() && clone.is_same_object(&made));
    assert!(Datatype::duplicate(&made).is_committed());
    assert!(!Datatype::duplicate(&made).is_same_object(&made));
}
