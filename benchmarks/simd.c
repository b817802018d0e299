/* Softmax attention at key dimension 2 and value dimension 2, by hand: what the machine can do at best.
 *
 *   mean_i = sum_j exp(q_i . y_j - s_i) y_j / sum_j exp(q_i . y_j - s_i),   s_i = |q_i| max_j |y_j|.
 *
 * Vectors as wide as the machine has (64 bytes), four queries at a time so that one load of keys serves four sums, and
 * all cores. The caller sees to it that n is a multiple of 16 and that no shifted logit leaves the range of exp.
 * exp(x) = 2^m exp(r): m by the addition of a large number that rounds, |r| <= log(2)/2, exp(r) by its Taylor
 * polynomial, of degree 6 in float and 12 in double (errors 1e-7 and 2e-16), and 2^m by an addition to the exponent.
 */
#include <math.h>
#include <stdint.h>

#define QUERIES 4

#define ATTENTION(NAME, REAL, INTEGER, LANES, DEGREE, MANTISSA, ROUNDER, LN2_HIGH, LN2_LOW, SQRT)                      \
    typedef REAL NAME##_vector __attribute__((vector_size(64), aligned(sizeof(REAL)), may_alias));                     \
    typedef INTEGER NAME##_bits __attribute__((vector_size(64)));                                                      \
                                                                                                                       \
    static inline NAME##_vector NAME##_exp(NAME##_vector x) {                                                          \
        NAME##_vector rounded = x * (REAL)1.4426950408889634 + (REAL)ROUNDER;                                          \
        NAME##_vector m = rounded - (REAL)ROUNDER;                                                                     \
        NAME##_vector r = (x - m * (REAL)LN2_HIGH) - m * (REAL)LN2_LOW;                                                \
        NAME##_vector sum = (r - r) + (REAL)inverse_factorial[DEGREE];                                                 \
        for (int i = DEGREE - 1; i >= 0; i--) sum = sum * r + (REAL)inverse_factorial[i];                              \
        return (NAME##_vector)((NAME##_bits)sum + ((NAME##_bits)rounded << MANTISSA));                                 \
    }                                                                                                                  \
                                                                                                                       \
    void attention_##NAME(long n, const REAL *restrict q, const REAL *restrict y1, const REAL *restrict y2,            \
                          REAL *restrict out) {                                                                        \
        REAL largest = 0;                                                                                              \
        for (long j = 0; j < n; j++) {                                                                                 \
            REAL square = y1[j] * y1[j] + y2[j] * y2[j];                                                               \
            largest = square > largest ? square : largest;                                                             \
        }                                                                                                              \
        _Pragma("omp parallel for schedule(dynamic, 32)")                                                              \
        for (long i = 0; i < n; i += QUERIES) {                                                                        \
            NAME##_vector total[QUERIES], first[QUERIES], second[QUERIES];                                             \
            REAL a[QUERIES], b[QUERIES], shift[QUERIES];                                                               \
            for (int u = 0; u < QUERIES; u++) {                                                                        \
                a[u] = q[2 * (i + u)], b[u] = q[2 * (i + u) + 1];                                                      \
                shift[u] = SQRT((a[u] * a[u] + b[u] * b[u]) * largest);                                                \
                total[u] = first[u] = second[u] = (NAME##_vector){0};                                                  \
            }                                                                                                          \
            for (long j = 0; j < n; j += LANES) {                                                                      \
                NAME##_vector v1 = *(const NAME##_vector *)(y1 + j), v2 = *(const NAME##_vector *)(y2 + j);            \
                for (int u = 0; u < QUERIES; u++) {                                                                    \
                    NAME##_vector p = NAME##_exp(v1 * a[u] + (v2 * b[u] - shift[u]));                                  \
                    total[u] += p, first[u] += p * v1, second[u] += p * v2;                                            \
                }                                                                                                      \
            }                                                                                                          \
            for (int u = 0; u < QUERIES; u++) {                                                                        \
                REAL t = 0, x = 0, z = 0;                                                                              \
                for (int l = 0; l < LANES; l++) t += total[u][l], x += first[u][l], z += second[u][l];                 \
                out[2 * (i + u)] = x / t, out[2 * (i + u) + 1] = z / t;                                                \
            }                                                                                                          \
        }                                                                                                              \
    }

static const double inverse_factorial[] = {
    1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
    1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
};

ATTENTION(float, float, int32_t, 16, 6, 23, 12582912.0, 0.693145751953125, 1.42860682030941723e-6, sqrtf)
ATTENTION(double, double, int64_t, 8, 12, 52, 6755399441055744.0, 6.93147180369123816490e-1, 1.90821492927058770002e-10,
          sqrt)
