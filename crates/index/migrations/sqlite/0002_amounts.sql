-- Sums of amounts. `value` is decimal text, since an amount may have 256 bits: sum(value) would make a float of
-- it and lose digits without a word. Here an amount is nine numbers of nine digits, the lowest one first, whose
-- sums are exact for 9 thousand million rows; the two views below carry them over and give decimal text.

CREATE VIEW tx_amounts AS
SELECT id, hash, block_number, tx_index, "from", "to", status, value,
    CAST(substr(padded, 73, 9) AS INTEGER) AS value_0,
    CAST(substr(padded, 64, 9) AS INTEGER) AS value_1,
    CAST(substr(padded, 55, 9) AS INTEGER) AS value_2,
    CAST(substr(padded, 46, 9) AS INTEGER) AS value_3,
    CAST(substr(padded, 37, 9) AS INTEGER) AS value_4,
    CAST(substr(padded, 28, 9) AS INTEGER) AS value_5,
    CAST(substr(padded, 19, 9) AS INTEGER) AS value_6,
    CAST(substr(padded, 10, 9) AS INTEGER) AS value_7,
    CAST(substr(padded, 1, 9) AS INTEGER) AS value_8
FROM (SELECT *, substr('000000000000000000000000000000000000000000000000000000000000000000000000000000000' || value, -81) AS padded FROM txs);

-- What each address has sent, in transactions that did not fail.
CREATE VIEW amounts_sent AS
SELECT address, transactions, (
    WITH RECURSIVE carried (place, carry, digits) AS (
        SELECT 0, 0, ''
        UNION ALL
        SELECT place + 1,
            (carry + json_extract(sums, '$[' || place || ']')) / 1000000000,
            printf('%09d', (carry + json_extract(sums, '$[' || place || ']')) % 1000000000) || digits
        FROM carried WHERE place < 9
    )
    SELECT coalesce(nullif(ltrim(carry || digits, '0'), ''), '0') FROM carried WHERE place = 9
) AS total
FROM (
    SELECT "from" AS address, count(*) AS transactions,
        json_array(sum(value_0), sum(value_1), sum(value_2), sum(value_3), sum(value_4),
                   sum(value_5), sum(value_6), sum(value_7), sum(value_8)) AS sums
    FROM tx_amounts
    WHERE "from" IS NOT NULL AND value IS NOT NULL AND status IS NOT 0
    GROUP BY "from"
);

-- What each address has received. A contract that a transaction creates receives nothing here: its `to` is NULL.
CREATE VIEW amounts_received AS
SELECT address, transactions, (
    WITH RECURSIVE carried (place, carry, digits) AS (
        SELECT 0, 0, ''
        UNION ALL
        SELECT place + 1,
            (carry + json_extract(sums, '$[' || place || ']')) / 1000000000,
            printf('%09d', (carry + json_extract(sums, '$[' || place || ']')) % 1000000000) || digits
        FROM carried WHERE place < 9
    )
    SELECT coalesce(nullif(ltrim(carry || digits, '0'), ''), '0') FROM carried WHERE place = 9
) AS total
FROM (
    SELECT "to" AS address, count(*) AS transactions,
        json_array(sum(value_0), sum(value_1), sum(value_2), sum(value_3), sum(value_4),
                   sum(value_5), sum(value_6), sum(value_7), sum(value_8)) AS sums
    FROM tx_amounts
    WHERE "to" IS NOT NULL AND value IS NOT NULL AND status IS NOT 0
    GROUP BY "to"
);
