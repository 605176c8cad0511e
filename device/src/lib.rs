//! Chips behind one trait: a simulator, vendor libraries by dlopen, and a kernel compiler.
