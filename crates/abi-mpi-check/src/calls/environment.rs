//! The begin and the end of MPI.

use crate::active::checked;
use crate::entry::entry;
use crate::library::SUCCESS;
use crate::state;

entry!(MPI_Init(argc: usize, argv: usize) call {
    let code = call();
    if code == SUCCESS {
        state::begin();
    }
    code
});

entry!(MPI_Init_thread(argc: usize, argv: usize, required: i32, provided: usize) call {
    let code = call();
    if code == SUCCESS {
        state::begin();
    }
    code
});

entry!(MPI_Finalize() call {
    checked(|| {
        state::end();
        Some(())
    });
    call()
});
