/* The arithmetic of the kernels. This file is included once for each instruction set, with
 *
 *   NAME(x)  the name of function x in that copy,
 *   WIDTH    doubles in a vector register (2 or 4).
 *
 * Both copies have the same bits: an operation rounds once (-ffp-contract=off, no FMA), and every sum has a fixed
 * order: eight lanes, added pairwise, then the rest one by one. Packed matrices hold the upper triangle by rows.
 */

typedef double NAME(vec) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef int64_t NAME(mask) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
#define VEC NAME(vec)
#define MASK NAME(mask)
#define AT(p) (*(VEC *)(p))
#define IN(p) (*(const VEC *)(p))

/* ---- products ---------------------------------------------------------------------------------------------- */

/* The sum of eight lanes, pairwise: lane i holds the terms i, i + 8, ... whatever WIDTH is, so that the bits agree. */
static inline double NAME(of_eight)(const VEC *lanes) {
  const double *s = (const double *)lanes;
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* The inner product of two vectors of n numbers: eight lanes, then the rest one by one. */
static double NAME(dot)(const double *a, const double *b, int64_t n) {
  VEC lanes[8 / WIDTH] = {{0}};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int v = 0; v < 8 / WIDTH; v++) lanes[v] += IN(a + i + v * WIDTH) * IN(b + i + v * WIDTH);
  double sum = NAME(of_eight)(lanes);
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* Add factor * x to y, n numbers each: no sum, so that any order has the same bits. */
static void NAME(axpy)(double factor, const double *x, double *restrict y, int64_t n) {
  for (int64_t j = 0; j < n; j++) y[j] += factor * x[j];
}

/* Add factor * q to y, and return q . x: one pass over q. */
static double NAME(dot_axpy)(const double *q, const double *x, double factor, double *restrict y, int64_t n) {
  VEC lanes[8 / WIDTH] = {{0}};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int v = 0; v < 8 / WIDTH; v++) {
      VEC entries = IN(q + i + v * WIDTH);
      lanes[v] += entries * IN(x + i + v * WIDTH);
      AT(y + i + v * WIDTH) += factor * entries;
    }
  double sum = NAME(of_eight)(lanes);
  for (; i < n; i++) {
    sum += q[i] * x[i];
    y[i] += factor * q[i];
  }
  return sum;
}

/* ---- rows -------------------------------------------------------------------------------------------------- */

/* A number rounded towards zero to the lattice of rows, multiples of 2^-20: no norm grows. */
static inline double NAME(truncated)(double value) {
  return trunc(value * LATTICE) * (1.0 / LATTICE) + 0.0; /* + 0.0: no negative zero */
}

/* Scale a row and truncate it to the lattice. Return its squared norm, which is exact, or nan. */
static double NAME(admit)(const double *row, double factor, double *restrict out, int64_t d) {
  for (int64_t j = 0; j < d; j++) out[j] = NAME(truncated)(row[j] * factor);
  return NAME(dot)(out, out, d);
}

/* The same for a row within bounds. Return nan if a value lies outside its bounds or is not finite. */
static double NAME(admit_bounded)(const double *row, const double *middle, const double *factor, double *restrict out,
                                  int64_t d) {
  double share = 1.0 / sqrt((double)d);
  for (int64_t j = 0; j < d; j++) {
    double value = (row[j] - middle[j]) * factor[j];
    if (!(fabs(value) <= 1.0)) return NAN;
    out[j] = NAME(truncated)(value * share);
  }
  return NAME(dot)(out, out, d);
}

/* Whole units and rests of a packed Gram matrix, plus the outer product of a row on the lattice. Exact. */
static void NAME(add_outer)(const double *whole, const double *rest, const double *row, double *restrict new_whole,
                            double *restrict new_rest, int64_t d) {
  for (int64_t i = 0, at = 0; i < d; i++) {
    double one = row[i];
    for (int64_t j = i; j < d; j++, at++) {
      double entry = rest[at] + one * row[j], units = floor(entry);
      new_whole[at] = whole[at] + units;
      new_rest[at] = entry - units;
    }
  }
}

/* ---- noise ------------------------------------------------------------------------------------------------- */

/* Turn words into normals. List the places of those outside their rectangle, and return how many there are. */
static int64_t NAME(ziggurat)(const uint64_t *words, int64_t n, const double *scale, const int64_t *inside, int64_t mask,
                              double *restrict values, int64_t *restrict outside) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t field = (int64_t)(words[i] & (uint64_t)mask), integer = (int64_t)(words[i] >> 13);
    values[i] = (double)integer * scale[field];
    outside[count] = i;
    count += integer >= inside[field];
  }
  return count;
}

/* A step of buffered noise for size coordinates of buffers that are stride apart. Chunks stay in the first cache from
   one buffer to the next. */
static void NAME(buffered_step)(const double *fresh, const double *buffers, const double *total, const double *mix,
                                const double *rate, int64_t count, int64_t stride, int64_t size, double scale,
                                double keep, double *restrict after, double *restrict out) {
  for (int64_t start = 0; start < size; start += CHUNK) {
    int64_t n = size - start < CHUNK ? size - start : CHUNK;
    const double *z = fresh + start;
    double *restrict y = out + start;
    if (count == 0) memset(y, 0, sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < count; i++) {
      const double *r = buffers + i * stride + start;
      double *restrict left = after + i * stride + start, m = mix[i], gone = rate[i];
      if (i == 0)
        for (int64_t j = 0; j < n; j++) y[j] = m * r[j];
      else
        for (int64_t j = 0; j < n; j++) y[j] += m * r[j];
      for (int64_t j = 0; j < n; j++) left[j] = (r[j] - gone * r[j]) + z[j];
    }
    for (int64_t j = 0; j < n; j++) y[j] = total[start + j] * keep + (y[j] + z[j]) * scale;
  }
}

/* Whole units, rests and noise on the lattice, rounded once; with a step, a power of two, then to its multiples. */
static void NAME(plus)(const double *rest, const double *whole, const double *noise, const double *weights, double magic,
                       double step, double *restrict out, int64_t size) {
  double steps = step > 0.0 ? 1.0 / step : 0.0;
  for (int64_t i = 0; i < size; i++) {
    double entry = noise[i] * weights[i], units = floor(entry);
    entry = (entry - units) + magic; /* magic = 1.5 * 2^52 / 2^40: its sum is rounded to the lattice */
    entry -= magic;
    entry = (rest[i] + entry) + (units + whole[i]);
    out[i] = step > 0.0 ? rint(entry * steps) * step + 0.0 : entry;
  }
}

/* ---- smoothing --------------------------------------------------------------------------------------------- */

/* The sum of up to 128 numbers in the order of numpy.sum. */
static double NAME(numpy_sum)(const double *values, int64_t count) {
  double total = 0.0;
  int64_t done = 0;
  if (count >= 8) {
    double part[8];
    memcpy(part, values, sizeof part);
    done = count - count % 8;
    for (int64_t i = 8; i < done; i += 8)
      for (int j = 0; j < 8; j++) part[j] += values[i + j];
    total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  for (int64_t i = done; i < count; i++) total += values[i];
  return total;
}

/* The transition of the filter's state, from the left (columns of m) and from the right (rows). */
static void NAME(transition)(double *m, const double *theta, double scale, int64_t n) {
  for (int64_t j = 0; j < n; j++) {
    for (int64_t i = 2; i < n - 1; i++) m[i * n + j] = theta[i - 2] * m[i * n + j] + m[n + j] / scale;
    m[(n - 1) * n + j] += m[n + j];
  }
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 2; j < n - 1; j++) m[i * n + j] = theta[j - 2] * m[i * n + j] + m[i * n + 1] / scale;
    m[i * n + n - 1] += m[i * n + 1];
  }
}

/* Advance both covariances in place, (n, n) each; gain gets the gain of this release. work: 5 n. */
static void NAME(filter_gain)(double *covariance, double *response, const double *omega, const double *theta, double drift,
                              double scatter, double scale, double share, double *gain, double *work, int64_t n) {
  double *h = work, *terms = work + n, *product = work + 2 * n, *across = work + 3 * n, *left = work + 4 * n;
  covariance[0] += drift;
  for (int pass = 0; pass < 2; pass++) {
    double *m = pass ? response : covariance;
    for (int64_t i = 0; i < n; i++) m[n + i] = share * m[i];
    for (int64_t i = 0; i < n; i++) m[i * n + 1] = share * m[i * n];
    m[n + 1] = share * share * m[0];
  }
  covariance[n + 1] = share * share * covariance[0] + share * scatter;
  for (int64_t i = 0; i < n; i++) h[i] = 0.0;
  h[1] = 1.0 / scale;
  for (int64_t i = 2; i < n - 1; i++) h[i] = omega[i - 2];
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++) terms[j] = covariance[i * n + j] * h[j];
    product[i] = NAME(numpy_sum)(terms, n);
  }
  for (int64_t j = 0; j < n; j++) terms[j] = h[j] * product[j];
  double variance = NAME(numpy_sum)(terms, n) + 1.0;
  for (int64_t i = 0; i < n; i++) {
    gain[i] = product[i] / variance;
    for (int64_t j = 0; j < n; j++) covariance[i * n + j] -= product[i] * product[j] / variance;
  }
  for (int64_t j = 0; j < n; j++) across[j] = h[0] * response[j];
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < n; j++) across[j] += h[i] * response[i * n + j];
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++) {
      left[j] = response[i * n + j] - gain[i] * across[j];
      terms[j] = left[j] * h[j];
    }
    double total = NAME(numpy_sum)(terms, n);
    for (int64_t j = 0; j < n; j++) response[i * n + j] = left[j] - total * gain[j] + gain[i] * gain[j];
  }
  NAME(transition)(covariance, theta, scale, n);
  NAME(transition)(response, theta, scale, n);
  for (int64_t i = 2; i < n - 1; i++) gain[i] = theta[i - 2] * gain[i] + gain[1] / scale;
  gain[n - 1] += gain[1];
}

/* The coordinates of the filter: decayed buffers, and the next mean and sum. */
static void NAME(smoothed_sums)(const double *released, const double *before, const double *mean, const double *total,
                                const double *buffers, const double *omega, const double *theta, const double *gain,
                                int64_t count, double scale, double share, double *restrict decayed,
                                double *restrict next_mean, double *restrict next_sum, int64_t size) {
  double step[CHUNK], innovation[CHUNK], last = gain[count + 2];
  for (int64_t start = 0; start < size; start += CHUNK) {
    int64_t n = size - start < CHUNK ? size - start : CHUNK;
    for (int64_t j = 0; j < n; j++)
      step[j] = (released[start + j] - before[start + j] - mean[start + j] * share) / scale;
    for (int64_t i = 0; i < count; i++) {
      const double *b = buffers + i * size + start;
      if (i == 0)
        for (int64_t j = 0; j < n; j++) innovation[j] = omega[i] * b[j];
      else
        for (int64_t j = 0; j < n; j++) innovation[j] += omega[i] * b[j];
    }
    for (int64_t j = 0; j < n; j++) innovation[j] += step[j];
    for (int64_t i = 0; i < count; i++) {
      const double *b = buffers + i * size + start;
      double *restrict left = decayed + i * size + start, gone = theta[i], weight = gain[i + 2];
      for (int64_t j = 0; j < n; j++) left[j] = (gone * b[j] + step[j]) - weight * innovation[j];
    }
    for (int64_t j = 0; j < n; j++) {
      next_mean[start + j] = mean[start + j] + gain[0] * innovation[j];
      next_sum[start + j] = total[start + j] + mean[start + j] * share + last * innovation[j];
    }
  }
}

/* ---- eigenvectors ------------------------------------------------------------------------------------------ */

/* Add a packed symmetric matrix times columns to product; both by rows, (k, d). */
static void NAME(multiply_packed)(const double *packed, const double *span, double *product, int64_t d, int64_t k) {
  for (int64_t i = 0; i < d; i++) {
    int64_t n = d - i - 1;
    for (int64_t c = 0; c < k; c++) {
      const double *x = span + c * d + i;
      double *y = product + c * d + i;
      y[0] += packed[0] * x[0];
      y[0] += NAME(dot_axpy)(packed + 1, x + 1, x[0], y + 1, n);
    }
    packed += n + 1;
  }
}

/* Multiply x by I - tau v v^T. */
static void NAME(reflect)(const double *v, double tau, double *x, int64_t n) {
  NAME(axpy)(-tau * NAME(dot)(v, x, n), v, x, n);
}

/* An orthonormal basis of (M + shift I) span by Householder reflectors, with the signs of LAPACK. work: d k + k. */
static void NAME(power_step)(const double *packed, const double *span, double shift, double *basis, double *work, int64_t d,
                             int64_t k) {
  double *product = work, *tau = work + d * k;
  for (int64_t i = 0; i < d * k; i++) product[i] = shift * span[i];
  NAME(multiply_packed)(packed, span, product, d, k);
  for (int64_t c = 0; c < k; c++) {
    double *v = product + c * d + c, square = NAME(dot)(v + 1, v + 1, d - c - 1);
    tau[c] = 0.0;
    if (square > 0.0) {
      double first = v[0], length = -copysign(sqrt(first * first + square), first), scale = 1.0 / (first - length);
      tau[c] = (length - first) / length;
      for (int64_t j = 1; j < d - c; j++) v[j] *= scale;
    }
    v[0] = 1.0;
    for (int64_t i = c + 1; i < k; i++) NAME(reflect)(v, tau[c], product + i * d + c, d - c);
  }
  memset(basis, 0, sizeof(double) * (size_t)(d * k));
  for (int64_t i = 0; i < k; i++) {
    basis[i * d + i] = 1.0;
    for (int64_t c = i; c >= 0; c--) NAME(reflect)(product + c * d + c, tau[c], basis + i * d + c, d - c);
  }
}

/* Copy a vector into a column; its largest entry becomes positive. */
static void NAME(signed_column)(const double *z, double *basis, int64_t d, int64_t k, int64_t column) {
  int64_t peak = 0;
  for (int64_t j = 0; j < d; j++)
    if (fabs(z[j]) > fabs(z[peak])) peak = j;
  double sign = copysign(1.0, z[peak]);
  for (int64_t j = 0; j < d; j++) basis[j * k + column] = z[j] * sign;
}

/* Rotate two vectors of n entries, stride apart, by the angle of cosine c and sine s. */
static void NAME(rotate)(double *x, double *y, int64_t stride, int64_t n, double c, double s) {
  for (int64_t a = 0; a < n * stride; a += stride) {
    double one = x[a], other = y[a];
    x[a] = c * one - s * other;
    y[a] = s * one + c * other;
  }
}

/* Ritz pairs of a packed matrix in a span by rows, (k, d): cyclic Jacobi on the compressed matrix.
   work: 2 d k + 2 k k. */
static void NAME(ritz_pairs)(const double *packed, const double *span, double *values, double *basis, double *work,
                             int64_t d, int64_t k) {
  double *product = work, *vector = work + d * k, *small = work + 2 * d * k, *turned = small + k * k, largest = 0.0;
  memset(product, 0, sizeof(double) * (size_t)(d * k));
  NAME(multiply_packed)(packed, span, product, d, k);
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = i; j < k; j++) {
      double entry = NAME(dot)(span + i * d, product + j * d, d);
      small[i * k + j] = small[j * k + i] = entry;
      if (fabs(entry) > largest) largest = fabs(entry);
    }
  for (int64_t i = 0; i < k * k; i++) turned[i] = i % (k + 1) == 0 ? 1.0 : 0.0;
  for (int sweep = 0; sweep < 60; sweep++) { /* bounded for nan, too */
    double off = 0.0;
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = i + 1; j < k; j++) {
        double entry = small[i * k + j];
        if (fabs(entry) > off) off = fabs(entry);
        if (fabs(entry) <= 1e-17 * largest) continue;
        double ratio = 0.5 * (small[j * k + j] - small[i * k + i]) / entry;
        double t = copysign(1.0, ratio) / (fabs(ratio) + sqrt(ratio * ratio + 1.0));
        double c = 1.0 / sqrt(t * t + 1.0), s = t * c;
        NAME(rotate)(small + i * k, small + j * k, 1, k, c, s);
        NAME(rotate)(small + i, small + j, k, k, c, s);
        NAME(rotate)(turned + i * k, turned + j * k, 1, k, c, s);
      }
    if (off <= 1e-15 * largest) break;
  }
  for (int64_t place = 0; place < k; place++) {
    int64_t best = 0;
    for (int64_t i = 0; i < k; i++)
      if (small[i * k + i] > small[best * k + best]) best = i;
    values[place] = small[best * k + best];
    small[best * k + best] = -INFINITY;
    memset(vector, 0, sizeof(double) * (size_t)d);
    for (int64_t i = 0; i < k; i++) NAME(axpy)(turned[best * k + i], span + i * d, vector, d);
    NAME(signed_column)(vector, basis, d, k, place);
  }
}

/* Reduce a symmetric matrix, given by its lower triangle (destroyed), to tridiagonal form, last row first. A pass over
   two rows applies the reflector before, and multiplies by the next one. Reflector j has the first j entries of v_j. */
static void NAME(tridiagonalize)(double *a, double *diagonal, double *beside, double *v, double *tau, double *p, double *w,
                                 double *old, int64_t d) {
  for (int64_t j = 0; j < d; j++) p[j] = w[j] = old[j] = 0.0;
  for (int64_t j = d - 1; j >= 0; j--) {
    double *row = a + j * d, *u = v + j * d, x = old[j], y = w[j];
    for (int64_t t = 0; t <= j; t++) row[t] -= x * w[t] + y * old[t];
    diagonal[j] = row[j];
    if (j == 0) return;
    double first = row[j - 1], square = NAME(dot)(row, row, j - 1);
    if (square == 0.0) {
      beside[j - 1] = first;
      tau[j] = 0.0;
      memset(u, 0, sizeof(double) * (size_t)j);
    } else {
      double length = -copysign(sqrt(first * first + square), first), scale = 1.0 / (first - length);
      beside[j - 1] = length;
      tau[j] = (length - first) / length;
      for (int64_t t = 0; t < j - 1; t++) u[t] = row[t] * scale;
      u[j - 1] = 1.0;
    }
    memset(p, 0, sizeof(double) * (size_t)j);
    int64_t i = 0;
    for (; i + 1 < j; i += 2) {
      double x1 = old[i], y1 = w[i], u1 = u[i], x2 = old[i + 1], y2 = w[i + 1], u2 = u[i + 1];
      double *e = a + i * d, *f = e + d;
      VEC s1[4 / WIDTH] = {{0}}, s2[4 / WIDTH] = {{0}};
      int64_t t = 0;
      for (; t + 4 <= i; t += 4)
        for (int l = 0; l < 4 / WIDTH; l++) {
          int64_t at = t + l * WIDTH;
          VEC one = AT(e + at) - (x1 * IN(w + at) + y1 * IN(old + at));
          VEC two = AT(f + at) - (x2 * IN(w + at) + y2 * IN(old + at));
          AT(e + at) = one;
          AT(f + at) = two;
          s1[l] += one * IN(u + at);
          s2[l] += two * IN(u + at);
          AT(p + at) += one * u1 + two * u2;
        }
      const double *q1 = (const double *)s1, *q2 = (const double *)s2;
      double t1 = (q1[0] + q1[2]) + (q1[1] + q1[3]), t2 = (q2[0] + q2[2]) + (q2[1] + q2[3]);
      for (; t < i; t++) {
        double one = e[t] - (x1 * w[t] + y1 * old[t]), two = f[t] - (x2 * w[t] + y2 * old[t]);
        e[t] = one;
        f[t] = two;
        t1 += one * u[t];
        t2 += two * u[t];
        p[t] += one * u1 + two * u2;
      }
      e[i] -= 2.0 * x1 * y1;
      f[i] -= x2 * y1 + y2 * x1;
      f[i + 1] -= 2.0 * x2 * y2;
      p[i] += t1 + e[i] * u1 + f[i] * u2;
      p[i + 1] += t2 + f[i + 1] * u2 + f[i] * u1;
    }
    if (i < j) { /* an odd row is left */
      double x1 = old[i], y1 = w[i], u1 = u[i], *e = a + i * d, total = 0.0;
      for (int64_t t = 0; t < i; t++) {
        double one = e[t] - (x1 * w[t] + y1 * old[t]);
        e[t] = one;
        total += one * u[t];
        p[t] += one * u1;
      }
      e[i] -= 2.0 * x1 * y1;
      p[i] += total + e[i] * u1;
    }
    for (i = 0; i < j; i++) p[i] *= tau[j];
    double inner = 0.5 * tau[j] * NAME(dot)(p, u, j);
    for (i = 0; i < j; i++) {
      w[i] = p[i] - inner * u[i];
      old[i] = u[i];
    }
  }
}

/* Count the eigenvalues of T above each of n points (a multiple of 4), by Sturm sequences; squares from index 1 on. */
static void NAME(count_above)(const double *diagonal, const double *squares, const double *points, int64_t *above,
                              int64_t d, int64_t n) {
  const VEC zero = {0}, tiny = zero + 1e-280;
  VEC pivot[4 * MOST / WIDTH];
  MASK count[4 * MOST / WIDTH];
  n /= WIDTH;
  for (int64_t l = 0; l < n; l++) {
    pivot[l] = zero + 1.0;
    count[l] = (MASK)zero;
  }
  for (int64_t i = 0; i < d; i++)
    for (int64_t l = 0; l < n; l++) { /* independent chains of divisions */
      VEC value = (diagonal[i] - IN(points + l * WIDTH)) - squares[i] / pivot[l];
      MASK large = (value > tiny) | (value < -tiny); /* else it becomes 1e-280; nan, too, as numbers compare */
      value = (VEC)(((MASK)value & large) | ((MASK)tiny & ~large));
      pivot[l] = value;
      count[l] -= value > zero;
    }
  memcpy(above, count, sizeof(VEC) * (size_t)n);
}

/* Solve (T - shift I) z = g e_r with z_r = 1 for the r of least |g|, and scale z to norm 1. Return what its Rayleigh
   quotient exceeds the shift by; residual gets the norm of the residual. */
static double NAME(twisted)(const double *diagonal, const double *beside, double shift, double *down, double *up, double *z,
                            int64_t d, double *residual) {
  down[0] = diagonal[0] - shift;
  up[d - 1] = diagonal[d - 1] - shift;
  for (int64_t i = 1; i < d; i++) { /* two independent chains of divisions */
    if (fabs(down[i - 1]) < 1e-280) down[i - 1] = 1e-280;
    down[i] = (diagonal[i] - shift) - beside[i - 1] * beside[i - 1] / down[i - 1];
    int64_t t = d - 1 - i;
    if (fabs(up[t + 1]) < 1e-280) up[t + 1] = 1e-280;
    up[t] = (diagonal[t] - shift) - beside[t] * beside[t] / up[t + 1];
  }
  int64_t r = 0;
  double g = INFINITY, square = 1.0;
  for (int64_t i = 0; i < d; i++) {
    double value = down[i] + up[i] - (diagonal[i] - shift);
    if (fabs(value) < fabs(g)) {
      r = i;
      g = value;
    }
  }
  z[r] = 1.0;
  for (int64_t i = r - 1; i >= 0; i--) {
    z[i] = -(beside[i] / down[i]) * z[i + 1];
    square += z[i] * z[i];
  }
  for (int64_t i = r + 1; i < d; i++) {
    z[i] = -(beside[i - 1] / up[i]) * z[i - 1];
    square += z[i] * z[i];
  }
  double scale = 1.0 / sqrt(square);
  for (int64_t i = 0; i < d; i++) z[i] *= scale;
  *residual = fabs(g) * scale;
  return g / square;
}

/* 1 if it is proved that orthonormal vectors and descending values are the top pairs of T: an eigenvalue lies within a
   residual (1e-12 of the norm) of each value, the values are further apart, and by Sturm counts no more eigenvalues than
   these lie above the last one less 1e-9 of the norm. */
static int NAME(certified)(const double *diagonal, const double *beside, const double *squares, const double *values,
                           const double *vectors, double norm, int64_t d, int64_t k) {
  double points[4];
  int64_t above[4];
  for (int j = 0; j < 4; j++) points[j] = values[k - 1] - APART * norm;
  NAME(count_above)(diagonal, squares, points, above, d, 4);
  if (above[0] != k) return 0;
  for (int64_t i = 0; i < k; i++) {
    const double *z = vectors + i * d;
    double off = 0.0;
    if (i && !(values[i - 1] - values[i] > APART * norm)) return 0;
    for (int64_t j = 0; j < d; j++) {
      double rest = (diagonal[j] - values[i]) * z[j];
      if (j) rest += beside[j - 1] * z[j - 1];
      if (j < d - 1) rest += beside[j] * z[j + 1];
      off += rest * rest;
    }
    if (!(off <= RESIDUAL * norm * (RESIDUAL * norm))) return 0;
    for (int64_t other = 0; other <= i; other++)
      if (!(fabs(NAME(dot)(z, vectors + other * d, d) - (other == i ? 1.0 : 0.0)) <= RESIDUAL)) return 0;
  }
  return 1;
}

/* The top k eigenpairs of a packed matrix; 0 if they are not certified: the caller takes LAPACK. k <= MOST. */
static int NAME(top_pairs)(const double *packed, double *values, double *basis, double *work, int64_t d, int64_t k) {
  double *a = work, *v = a + d * d, *diagonal = v + d * d, *beside = diagonal + d, *tau = beside + d, *p = tau + d,
         *w = p + d, *old = w + d, *squares = old + d, *down = squares + d, *up = down + d, *vectors = up + d,
         *points = vectors + k * d + 2 * d, *lows = points + 4 * k, *highs = lows + k;
  int64_t above[4 * MOST];
  for (int64_t i = 0, at = 0; i < d; i++)
    for (int64_t j = i; j < d; j++) a[j * d + i] = packed[at++];
  NAME(tridiagonalize)(a, diagonal, beside, v, tau, p, w, old, d);
  double low = diagonal[0], high = low;
  for (int64_t i = 0; i < d; i++) { /* circles of Gershgorin */
    double radius = 0.0;
    squares[i] = 0.0;
    if (i) {
      squares[i] = beside[i - 1] * beside[i - 1];
      radius += fabs(beside[i - 1]);
    }
    if (i < d - 1) radius += fabs(beside[i]);
    if (diagonal[i] - radius < low) low = diagonal[i] - radius;
    if (diagonal[i] + radius > high) high = diagonal[i] + radius;
  }
  double norm = fmax(fabs(low), fabs(high));
  if (!(norm > 1e-100 && norm < 1e100)) return 0;
  for (int64_t i = 0; i < k; i++) {
    lows[i] = low - 1e-12 * norm;
    highs[i] = high + 1e-12 * norm;
  }
  for (int turn = 0; turn < 6; turn++) { /* all brackets are the same at first */
    for (int64_t i = 0; i < k; i++) {
      double step = (highs[i] - lows[i]) / (double)((turn ? 4 : 4 * k) + 1);
      for (int64_t j = 0; j < 4; j++) points[4 * i + j] = lows[i] + (double)(j + (turn ? 1 : 4 * i + 1)) * step;
    }
    NAME(count_above)(diagonal, squares, points, above, d, 4 * k);
    for (int64_t i = 0; i < k; i++)
      for (int64_t t = 0; t < 4 * k; t++) {
        if (above[t] > i) {
          if (points[t] > lows[i]) lows[i] = points[t];
        } else if (points[t] < highs[i])
          highs[i] = points[t];
      }
  }
  for (int64_t i = 0; i < k; i++) {
    double value = 0.5 * (lows[i] + highs[i]), *z = vectors + i * d, residual;
    for (int turn = 0; turn < 6; turn++) {
      value += NAME(twisted)(diagonal, beside, value, down, up, z, d, &residual);
      if (residual <= 1e-14 * norm) break;
    }
    values[i] = value;
    for (int64_t other = 0; other < i; other++) {
      double inner = NAME(dot)(z, vectors + other * d, d);
      if (!(fabs(inner) <= 1e-5)) return 0;
      NAME(axpy)(-inner, vectors + other * d, z, d);
      double scale = 1.0 / sqrt(NAME(dot)(z, z, d));
      for (int64_t j = 0; j < d; j++) z[j] *= scale;
    }
  }
  if (!NAME(certified)(diagonal, beside, squares, values, vectors, norm, d, k)) return 0;
  for (int64_t j = 1; j < d; j++)
    for (int64_t i = 0; i < k; i++) NAME(reflect)(v + j * d, tau[j], vectors + i * d, j);
  for (int64_t i = 0; i < k; i++) NAME(signed_column)(vectors + i * d, basis, d, k, i);
  return 1;
}

/* ---- streams about the mean: rows that are present have a constant appended, D = d + 1 ----------------------- */

/* The number of rows to divide by, from the corner of the released matrix of D, as linalg.centering.counted; noisy gets
   the estimate before it is bounded. */
static double NAME(counted)(double corner, double constant, double rows, double least, double *noisy) {
  *noisy = corner / (constant * constant);
  double count = *noisy > least ? *noisy : least;
  return count < rows ? count : rows;
}

/* The packed matrix of d features about the mean, the sums and the mean, from the released one of D. variance is that of
   the noise of a sum. Return the square of the mean before it is shrunk. Each operation, and its order, is that of
   linalg.centering.centered. */
static double NAME(center)(const double *raw, double constant, double count, double variance, double *out, double *sums,
                           double *mean, int64_t d) {
  double per_constant = 1.0 / constant, per_count = 1.0 / count, square = 0.0, bias = variance * per_count;
  for (int64_t i = 0, at = d; i < d; at += d - i, i++) sums[i] = raw[at] * per_constant; /* last of each packed row */
  for (int64_t i = 0; i < d; i++) {
    const double *others = sums + i, one = sums[i];
    for (int64_t j = 0; j < d - i; j++) out[j] = raw[j] - (one * others[j]) * per_count;
    out[0] += bias;
    out += d - i;
    raw += d - i + 1;
  }
  for (int64_t i = 0; i < d; i++) {
    mean[i] = sums[i] * per_count;
    square += mean[i] * mean[i];
  }
  if (square > 0.0) {
    double left = 1.0 - (double)d * variance * per_count * per_count / square, most = 1.0 / sqrt(square);
    double factor = left > 0.0 ? left : 0.0;
    if (!(factor <= most)) factor = most;
    for (int64_t i = 0; i < d; i++) mean[i] *= factor;
  }
  return square;
}

/* Scoring: the basis by rows, (k, d), and about a mean the linear part, (d + 1,): multiples of 2^-30. Entry (c, j) of
   the basis stands at c * row + j * column. */
static void NAME(scoring)(const double *basis, int64_t row, int64_t column, const double *mean, double constant,
                          double *out, int64_t d, int64_t k) {
  double *linear = out + d * k, square = 0.0;
  if (mean) memcpy(linear, mean, sizeof(double) * (size_t)d);
  for (int64_t c = 0; c < k; c++) {
    const double *b = basis + c * row;
    double inner = 0.0;
    if (mean) {
      for (int64_t j = 0; j < d; j++) inner += b[j * column] * mean[j];
      for (int64_t j = 0; j < d; j++) linear[j] -= inner * b[j * column];
    }
    for (int64_t j = 0; j < d; j++) out[c * d + j] = rint(b[j * column] * GRID) * (1.0 / GRID);
  }
  if (!mean) return;
  for (int64_t j = 0; j < d; j++) {
    square += linear[j] * linear[j];
    linear[j] = rint(linear[j] * GRID) * (1.0 / GRID);
  }
  linear[d] = rint(square * (-0.5 / constant) * GRID) * (1.0 / GRID);
}

#undef VEC
#undef MASK
#undef AT
#undef IN

