/* streampca._native.kernels: the inner loops of a row, on the stable ABI of CPython 3.11.
 *
 * No function keeps state, draws randomness or handles a key. Each checks type, shape, alignment and writability of its
 * arrays, holds the GIL and runs no Python code: handlers of signals run between calls, so that each call is atomic.
 * The functions have the names, the arguments and the bits of the numpy code beside which they are called.
 */
#define Py_LIMITED_API 0x030B0000
/* None is returned by Py_NewRef, not by Py_RETURN_NONE: headers of Python 3.12 and 3.13 take no reference there, also for
   the stable ABI of 3.11, which counts them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LATTICE 1048576.0 /* steps of the lattice in 1 */
#define GRID 1073741824.0   /* steps of scoring in 1 */
#define CHUNK 512         /* coordinates that stay in the first cache */
#define DRAWS 8192        /* normals of one call of the cipher: even */
#define MAGIC 6144.0      /* a sum with it is rounded to 2^-40, the step of the lattice of sums */
#define MOST 64           /* largest number of eigenpairs */
#define APART 1e-9        /* least distance of two eigenvalues, over the norm */
#define RESIDUAL 1e-12    /* largest residual, over the norm, and largest inner product of two vectors */

#define NAME(x) base_##x
#define WIDTH 2
#include "kernels.h"
#undef NAME
#undef WIDTH

#if defined(__x86_64__) && !defined(STREAMPCA_BASELINE)
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define NAME(x) avx2_##x
#define WIDTH 4
#include "kernels.h"
#undef NAME
#undef WIDTH
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#define PICK(f) (__builtin_cpu_supports("avx2") ? avx2_##f : base_##f)
#else
#define PICK(f) base_##f
#endif

/* ---- arguments --------------------------------------------------------------------------------------------- */

typedef struct {
  void *data;
  int64_t n, m; /* shape: (n,) or (n, m) */
  double number;
  int64_t integer;
} Arg;

typedef struct {
  Py_buffer views[16];
  int count;
} Held;

static void drop(Held *held) {
  for (int i = 0; i < held->count; i++) PyBuffer_Release(&held->views[i]);
  held->count = 0;
}

static PyObject *refused(Held *held, const char *why) {
  drop(held);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, why);
  return NULL;
}

/* Read arguments. One letter each: d, D a vector or matrix of doubles; u, U of unsigned words; l of integers; w, W, v, V,
   m the same to be written; x, y bytes to be read and to be written, aligned as doubles; f a number, i an integer. An array to be written shares no memory with any other. */
static int parsed(PyObject *const *args, Py_ssize_t given, const char *letters, Arg *out, Held *held) {
  static const char KINDS[] = "dDwWuUvVlmxy";
  int written[16];
  held->count = 0;
  if (given != (Py_ssize_t)strlen(letters)) {
    PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
    return 0;
  }
  for (Py_ssize_t i = 0; i < given; i++) {
    char letter = letters[i];
    if (letter == 'f') {
      out[i].number = PyFloat_AsDouble(args[i]);
      if (PyErr_Occurred()) goto bad;
      continue;
    }
    if (letter == 'i') {
      out[i].integer = PyLong_AsLongLong(args[i]);
      if (PyErr_Occurred()) goto bad;
      continue;
    }
    int at = (int)(strchr(KINDS, letter) - KINDS), dimensions = letter >= 'a' ? 1 : 2;
    int writes = at == 2 || at == 3 || at == 6 || at == 7 || at == 9 || at == 11;
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(args[i], view, PyBUF_ND | PyBUF_FORMAT | (writes ? PyBUF_WRITABLE : 0)) < 0) goto bad;
    written[held->count++] = writes;
    const char *format = view->format ? view->format : "B", *kinds = at < 4 ? "d" : at < 8 ? "LQ" : at < 10 ? "lq" : "B";
    if (!strchr(kinds, format[0]) || format[1] || view->itemsize != (at < 10 ? 8 : 1) || view->ndim != dimensions ||
        ((uintptr_t)view->buf & 7)) {
      PyErr_Format(PyExc_ValueError, "argument %zd: an aligned array of %d dimensions and of type '%c' is needed", i + 1,
                   dimensions, kinds[0]);
      goto bad;
    }
    out[i].data = view->buf;
    out[i].n = view->shape[0];
    out[i].m = dimensions == 2 ? view->shape[1] : 1;
  }
  for (int i = 0; i < held->count; i++)
    for (int j = 0; j < held->count; j++) {
      const char *one = held->views[i].buf, *other = held->views[j].buf;
      if (i != j && written[i] && one < other + held->views[j].len && other < one + held->views[i].len) {
        PyErr_SetString(PyExc_ValueError, "an array to be written shares memory with another argument");
        goto bad;
      }
    }
  return 1;
bad:
  drop(held);
  return 0;
}

static PyObject *none(Held *held) {
  drop(held);
  return Py_NewRef(Py_None);
}

#define DOUBLES(i) ((double *)a[i].data)
#define WORDS(i) ((uint64_t *)a[i].data)
#define INTEGERS(i) ((int64_t *)a[i].data)
#define BEGIN(letters)                                             \
  Arg a[16];                                                       \
  Held held;                                                       \
  (void)module;                                                    \
  if (!parsed(args, given, letters, a, &held)) return NULL
#define NEED(condition)                                            \
  if (!(condition)) return refused(&held, "shapes do not fit: " #condition)
#define ENTRY(name) static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t given)

static int64_t triangle(int64_t d) { return d * (d + 1) / 2; }

/* ---- rows -------------------------------------------------------------------------------------------------- */

ENTRY(admit) { /* row, factor, out -> square */
  BEGIN("dfW");
  NEED(a[2].n == 1 && a[2].m == a[0].n);
  double square = PICK(admit)(DOUBLES(0), a[1].number, DOUBLES(2), a[0].n);
  drop(&held);
  return PyFloat_FromDouble(square);
}

ENTRY(admit_bounded) { /* row, middle, factor, out -> square */
  BEGIN("dddW");
  NEED(a[1].n == a[0].n && a[2].n == a[0].n && a[3].n == 1 && a[3].m == a[0].n);
  double square = PICK(admit_bounded)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[0].n);
  drop(&held);
  return PyFloat_FromDouble(square);
}

ENTRY(is_admitted) { /* rows -> bool: on the lattice and inside the unit ball */
  BEGIN("D");
  int admitted = 1;
  for (int64_t i = 0; i < a[0].n && admitted; i++) {
    const double *row = DOUBLES(0) + i * a[0].m;
    int64_t off = 0;
    for (int64_t j = 0; j < a[0].m; j++) off += base_truncated(row[j]) != row[j];
    admitted = !off && PICK(dot)(row, row, a[0].m) <= 1.0;
  }
  drop(&held);
  return PyBool_FromLong(admitted);
}

ENTRY(snap) { /* rows, out, squares, long -> how many rows are outside the ball on the lattice */
  BEGIN("DWwm");
  NEED(a[1].n == a[0].n && a[1].m == a[0].m && a[2].n == a[0].n && a[3].n == a[0].n);
  int64_t count = 0, d = a[0].m;
  for (int64_t i = 0; i < a[0].n; i++) {
    double square = PICK(admit)(DOUBLES(0) + i * d, 1.0, DOUBLES(1) + i * d, d);
    INTEGERS(3)[count] = i;
    DOUBLES(2)[i] = square; /* exact up to 2^13, and larger sums stay above 1 */
    count += !(square <= 1.0);
  }
  drop(&held);
  return PyLong_FromLongLong(count);
}

ENTRY(add_outer) { /* parts, row, out */
  BEGIN("DdW");
  int64_t size = triangle(a[1].n);
  NEED(a[0].n == 2 && a[0].m == size && a[2].n == 2 && a[2].m == size);
  PICK(add_outer)(DOUBLES(0), DOUBLES(0) + size, DOUBLES(1), DOUBLES(2), DOUBLES(2) + size, a[1].n);
  return none(&held);
}

ENTRY(rounded) { /* columns (k, d), grid, out (d, k) */
  BEGIN("DfW");
  NEED(a[2].n == a[0].m && a[2].m == a[0].n);
  double grid = a[1].number;
  for (int64_t c = 0; c < a[0].n; c++)
    for (int64_t j = 0; j < a[0].m; j++) DOUBLES(2)[j * a[0].n + c] = rint(DOUBLES(0)[c * a[0].m + j] * grid) * (1.0 / grid);
  return none(&held);
}

ENTRY(score) { /* rows, basis (d, k), reward, rewards -> reward plus their sum, in order */
  BEGIN("DDfw");
  int64_t d = a[0].m, k = a[1].m;
  NEED(a[1].n == d && a[3].n == a[0].n);
  double total = a[2].number, *columns = PyMem_Malloc(sizeof(double) * (size_t)(d * k + 1));
  if (!columns) {
    PyErr_NoMemory();
    return refused(&held, "");
  }
  for (int64_t j = 0; j < d; j++)
    for (int64_t c = 0; c < k; c++) columns[c * d + j] = DOUBLES(1)[j * k + c];
  for (int64_t i = 0; i < a[0].n; i++) {
    double square = 0.0;
    for (int64_t c = 0; c < k; c++) { /* the products are exact: lattice times grid */
      double product = PICK(dot)(DOUBLES(0) + i * d, columns + c * d, d);
      square += product * product;
    }
    DOUBLES(3)[i] = square;
    total += square;
  }
  PyMem_Free(columns);
  drop(&held);
  return PyFloat_FromDouble(total);
}

/* ---- noise ------------------------------------------------------------------------------------------------- */

ENTRY(named_blocks) { /* name (2,), first, out (n, 2): block numbers as words (0, i), xor the name */
  BEGIN("uiV");
  NEED(a[0].n == 2 && a[2].m == 2);
  for (int64_t i = 0; i < a[2].n; i++) {
    WORDS(2)[2 * i] = WORDS(0)[0];
    WORDS(2)[2 * i + 1] = WORDS(0)[1] ^ (uint64_t)(a[1].integer + i);
  }
  return none(&held);
}

ENTRY(ziggurat) { /* words, scale, inside, values, outside -> how many are outside their rectangle */
  BEGIN("udlwm");
  int64_t n = a[0].n, fields = a[1].n;
  NEED(fields > 0 && (fields & (fields - 1)) == 0 && a[2].n == fields && a[3].n == n && a[4].n >= n);
  int64_t count = PICK(ziggurat)(WORDS(0), n, DOUBLES(1), INTEGERS(2), fields - 1, DOUBLES(3), INTEGERS(4));
  drop(&held);
  return PyLong_FromLongLong(count);
}

static double unit_of(uint64_t word) { return ((double)(word >> 11) + 0.5) * 0x1p-53; }

ENTRY(finish_normals) { /* words, outside, more, density, scale, inside, tail, values -> how many need another attempt */
  BEGIN("umuddlfw");
  int64_t fields = a[4].n, layers = fields / 2 - 1, count = 0;
  double tail = a[6].number, *density = DOUBLES(3), *values = DOUBLES(7);
  NEED(fields > 1 && (fields & (fields - 1)) == 0 && a[5].n == fields && a[3].n >= fields / 2 + 1);
  NEED(a[2].n >= 2 * a[1].n && a[7].n == a[0].n);
  for (int64_t i = 0; i < a[1].n; i++) {
    int64_t at = INTEGERS(1)[i];
    if (at < 0 || at >= a[0].n) return refused(&held, "a place outside the words");
    int64_t layer = (int64_t)(WORDS(0)[at] & (uint64_t)(fields - 1)) & layers;
    double unit = unit_of(WORDS(2)[2 * i]);
    int done = 0;
    if (layer == 0) { /* the tail: Marsaglia's pair of exponentials */
      double beyond = -log(unit) / tail;
      done = -2.0 * log(unit_of(WORDS(2)[2 * i + 1])) > beyond * beyond;
      if (done) values[at] = copysign(tail + beyond, values[at]);
    } else {
      done = density[layer] + unit * (density[layer + 1] - density[layer]) < exp(-0.5 * values[at] * values[at]);
      if (!done) { /* another word, another rectangle */
        uint64_t word = WORDS(2)[2 * i + 1];
        int64_t field = (int64_t)(word & (uint64_t)(fields - 1)), integer = (int64_t)(word >> 13);
        done = integer < INTEGERS(5)[field];
        if (done) values[at] = (double)integer * DOUBLES(4)[field];
      }
    }
    INTEGERS(1)[count] = at;
    count += !done;
  }
  drop(&held);
  return PyLong_FromLongLong(count);
}

ENTRY(plus) { /* part, whole, noise, weights, magic, step, out */
  BEGIN("ddddffw");
  int64_t n = a[0].n;
  NEED(a[1].n == n && a[2].n == n && a[3].n == n && a[6].n == n);
  PICK(plus)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[4].number, a[5].number, DOUBLES(6), n);
  return none(&held);
}

ENTRY(buffered_step) { /* fresh, buffers, total, mix, rate, scale, keep, after, out */
  BEGIN("dDdddffWw");
  int64_t n = a[0].n, c = a[1].n;
  NEED(a[1].m == n && a[2].n == n && a[3].n == c && a[4].n == c && a[7].n == c && a[7].m == n && a[8].n == n);
  PICK(buffered_step)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), c, n, n, a[5].number, a[6].number, DOUBLES(7),
                      DOUBLES(8));
  return none(&held);
}

ENTRY(buffered_release) { /* fresh, buffers, total, mix, rate, scale, keep, parts, weights, magic, step, after, out (2, n) */
  BEGIN("dDdddffDdffWW");
  int64_t n = a[0].n, c = a[1].n;
  NEED(a[1].m == n && a[2].n == n && a[3].n == c && a[4].n == c && a[7].n == 2 && a[7].m == n && a[8].n == n);
  NEED(a[11].n == c && a[11].m == n && a[12].n == 2 && a[12].m == n);
  double *noise = DOUBLES(12), *whole = DOUBLES(7);
  PICK(buffered_step)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), c, n, n, a[5].number, a[6].number, DOUBLES(11),
                      noise);
  PICK(plus)(whole + n, whole, noise, DOUBLES(8), a[9].number, a[10].number, noise + n, n);
  return none(&held);
}

/* ---- smoothing --------------------------------------------------------------------------------------------- */

ENTRY(filter_gain) { /* covariance, response, omega, theta, drift, scatter, scale, share, gain */
  BEGIN("WWddffffw");
  int64_t n = a[0].n;
  NEED(n >= 3 && n <= 128 && a[0].m == n && a[1].n == n && a[1].m == n && a[2].n == n - 3 && a[3].n == n - 3 && a[8].n == n);
  double work[5 * 128];
  PICK(filter_gain)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), a[4].number, a[5].number, a[6].number, a[7].number,
                    DOUBLES(8), work, n);
  return none(&held);
}

ENTRY(smoothed_sums) { /* released, before, mean, total, buffers, omega, theta, gain, scale, share, decayed, out (2, n) */
  BEGIN("ddddDdddffWW");
  int64_t n = a[0].n, c = a[4].n;
  NEED(c > 0 && a[1].n == n && a[2].n == n && a[3].n == n && a[4].m == n && a[5].n == c && a[6].n == c && a[7].n == c + 3);
  NEED(a[10].n == c && a[10].m == n && a[11].n == 2 && a[11].m == n);
  PICK(smoothed_sums)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), DOUBLES(4), DOUBLES(5), DOUBLES(6), DOUBLES(7), c,
                      a[8].number, a[9].number, DOUBLES(10), DOUBLES(11), DOUBLES(11) + n, n);
  return none(&held);
}

/* ---- eigenvectors ------------------------------------------------------------------------------------------ */

static double *workspace(Held *held, int64_t doubles) {
  double *work = PyMem_Malloc(sizeof(double) * (size_t)doubles);
  if (!work) {
    drop(held);
    PyErr_NoMemory();
  }
  return work;
}

ENTRY(top_pairs) { /* packed, values, basis (d, k) -> bool: False if they are not certified */
  BEGIN("dwW");
  int64_t d = a[2].n, k = a[2].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[1].n == k);
  int found = 0;
  if (k <= MOST) {
    double *work = workspace(&held, 2 * d * d + (13 + k) * d + 8 * k);
    if (!work) return NULL;
    found = PICK(top_pairs)(DOUBLES(0), DOUBLES(1), DOUBLES(2), work, d, k);
    PyMem_Free(work);
  }
  drop(&held);
  return PyBool_FromLong(found);
}

ENTRY(certified) { /* diagonal, beside, values, vectors (k, d), norm -> bool: are they the top pairs of T */
  BEGIN("dddDf");
  int64_t d = a[0].n, k = a[2].n;
  NEED(k >= 1 && k <= d && a[1].n >= d - 1 && a[3].n == k && a[3].m == d);
  double *squares = workspace(&held, d);
  if (!squares) return NULL;
  squares[0] = 0.0;
  for (int64_t i = 1; i < d; i++) squares[i] = DOUBLES(1)[i - 1] * DOUBLES(1)[i - 1];
  int proved = PICK(certified)(DOUBLES(0), DOUBLES(1), squares, DOUBLES(2), DOUBLES(3), a[4].number, d, k);
  PyMem_Free(squares);
  drop(&held);
  return PyBool_FromLong(proved);
}

ENTRY(power_step) { /* packed, span (k, d), shift, basis (k, d) */
  BEGIN("dDfW");
  int64_t k = a[1].n, d = a[1].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[3].n == k && a[3].m == d);
  double *work = workspace(&held, d * k + k);
  if (!work) return NULL;
  PICK(power_step)(DOUBLES(0), DOUBLES(1), a[2].number, DOUBLES(3), work, d, k);
  PyMem_Free(work);
  return none(&held);
}

ENTRY(ritz_pairs) { /* packed, span (k, d), values, basis (d, k) */
  BEGIN("dDwW");
  int64_t k = a[1].n, d = a[1].m;
  NEED(k >= 1 && k <= d && a[0].n == triangle(d) && a[2].n == k && a[3].n == d && a[3].m == k);
  double *work = workspace(&held, 2 * d * k + 2 * k * k);
  if (!work) return NULL;
  PICK(ritz_pairs)(DOUBLES(0), DOUBLES(1), DOUBLES(2), DOUBLES(3), work, d, k);
  PyMem_Free(work);
  return none(&held);
}

#include "plan.h"

/* ---- the module -------------------------------------------------------------------------------------------- */

#define ROW(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {ROW(add_outer),     ROW(admit),          ROW(admit_bounded), ROW(buffered_release),
                                ROW(buffered_step), ROW(certified),      ROW(filter_gain),   ROW(finish_normals),
                                ROW(is_admitted),   ROW(named_blocks),   ROW(plus),          ROW(power_step),
                                ROW(ritz_pairs),    ROW(rounded),        ROW(score),         ROW(smoothed_sums),
                                ROW(snap),          ROW(top_pairs),      ROW(ziggurat),      {NULL, NULL, 0, NULL}};

static int begin(PyObject *module) {
  PyObject *type = PyType_FromModuleAndSpec(module, &plan_spec, NULL);
  int failed = !type || PyModule_AddObjectRef(module, "Plan", type) < 0;
  Py_XDECREF(type);
  return failed ? -1 : PyModule_AddIntConstant(module, "VERSION", 1);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, begin}, {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "streampca._native.kernels", NULL, 0, methods, slots,
                                        NULL,                  NULL,                        NULL};
PyMODINIT_FUNC PyInit_kernels(void) { return PyModuleDef_Init(&definition); }
