# How hearth builds llama.cpp: install.sh hands this to CMake as CMAKE_PROJECT_llama_cpp_INCLUDE.
# Of 450 s of compiling, 210 were llama.cpp's library for its own programs, which nothing here loads.

# A variable of this scope, because llama-cpp-python forces the cache's.
set(LLAMA_BUILD_COMMON OFF)

# Of a wheel for every processor (GGML_CPU_ALL_VARIANTS), ggml's variants that are compiled; a processor
# that lies between two of them gets the lower one. Below SSE4.2, NumPy's wheels do not run either. That
# for Ice Lake would add VBMI to Cascade Lake's, which no code of ggml uses.
set(HEARTH_CPU_VARIANTS sse42 haswell alderlake skylakex cascadelake zen4 sapphirerapids
    CACHE STRING "CPU variants of ggml for x86")

# At the end of the project, when its targets are there.
function(hearth_settle)
    if(TARGET cpp-httplib)
        set_target_properties(cpp-httplib PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
    foreach(target llama mtmd)
        if(TARGET ${target} AND NOT MSVC)
            # Graphs and vocabularies: the work itself is done by ggml, which keeps -O3
            target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
        endif()
    endforeach()
    if(TARGET mtmd)
        # As llama.cpp does with the models of its library
        get_target_property(folder mtmd SOURCE_DIR)
        get_target_property(sources mtmd SOURCES)
        list(FILTER sources EXCLUDE REGEX "^models/")
        list(TRANSFORM sources PREPEND "${folder}/")
        set_source_files_properties(${sources} TARGET_DIRECTORY mtmd
            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    endif()
    if(GGML_CPU_ALL_VARIANTS)
        hearth_settle_variants()
    endif()
endfunction()

function(hearth_settle_variants)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.c "")
    get_property(targets DIRECTORY vendor/llama.cpp/ggml/src PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
        if(NOT target MATCHES "^ggml-cpu-([^-]*)$") # not the -feats, by which ggml chooses
            continue()
        endif()
        set(variant ${CMAKE_MATCH_1})
        if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT variant IN_LIST HEARTH_CPU_VARIANTS)
            # ggml depends on it by name
            set_target_properties(${target} PROPERTIES SOURCES ${CMAKE_BINARY_DIR}/empty.c)
            continue()
        endif()
        if(variant STREQUAL sapphirerapids AND CMAKE_CXX_COMPILER_ID STREQUAL GNU
                AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
            # GCC 12 drops the stores that set up the AMX tiles
            target_compile_options(${target} PRIVATE -fno-tree-dse -fno-dse)
        endif()
        set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH TRUE)
        install(TARGETS ${target} LIBRARY DESTINATION ${SKBUILD_PLATLIB_DIR}/llama_cpp/lib)
    endforeach()
    # GCC's OpenMP goes along, for a machine that never had a compiler. Under the name that the
    # system's has: of all that a process loads, the first one serves the others.
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libgomp.so.1
        OUTPUT_VARIABLE openmp OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${openmp}")
        message(FATAL_ERROR "${CMAKE_C_COMPILER} has no libgomp.so.1; a wheel for every processor needs GCC")
    endif()
    file(REAL_PATH "${openmp}" openmp)
    install(FILES ${openmp} DESTINATION ${SKBUILD_PLATLIB_DIR}/llama_cpp/lib RENAME libgomp.so.1)
    install(FILES ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/libgomp.txt
        DESTINATION ${SKBUILD_METADATA_DIR}/licenses)
endfunction()
cmake_language(DEFER CALL hearth_settle)
