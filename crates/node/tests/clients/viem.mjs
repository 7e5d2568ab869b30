// Reads a chain with viem from two nodes and compares the answers field by field.
//
//   node viem.mjs <modules> <source url> <secateur url> <boundary | none>
//
// Above the boundary every answer must be equal; at and below it Secateur must answer 4444.
// The last line is JSON with what was compared.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import path from 'node:path'

const [modules, sourceUrl, secateurUrl, boundaryWord] = process.argv.slice(2)
const { createPublicClient, http } = createRequire(path.join(modules, 'x.js'))('viem')
const client = url => createPublicClient({ transport: http(url, { retryCount: 0 }) })
const [source, secateur] = [client(sourceUrl), client(secateurUrl)]
const boundary = boundaryWord === 'none' ? -1n : BigInt(boundaryWord)

const counts = { blocks: 0, transactions: 0, receipts: 0, logs: 0, pruned: 0 }

/** The JSON-RPC code of an error, wherever viem has wrapped it. */
const codeOf = error => {
  for (let cause = error; cause; cause = cause.cause) if (cause.code) return cause.code
  return undefined
}

const isPruned = async call => {
  await assert.rejects(call, error => codeOf(error) === 4444)
  counts.pruned += 1
}

/** Takes out what anvil 1.7 says otherwise than the interface's definition; clients.rs says why. */
const setAside = answer => {
  if (answer?.transactionsRoot) {
    delete answer.size
    delete answer.totalDifficulty
  }
  if (answer?.cumulativeGasUsed !== undefined) {
    delete answer.blockTimestamp
    if (answer.type !== 'eip4844') delete answer.blobGasPrice
  }
  return answer
}

const same = async (what, ask) => {
  const [theirs, ours] = [setAside(await ask(source)), setAside(await ask(secateur))]
  assert.deepEqual(ours, theirs, what)
  return theirs
}

assert.equal(await secateur.getChainId(), await source.getChainId())
const head = await same('eth_blockNumber', node => node.getBlockNumber({ cacheTime: 0 }))

for (let blockNumber = 0n; blockNumber <= head; blockNumber += 1n) {
  const block = await source.getBlock({ blockNumber, includeTransactions: true })
  if (blockNumber <= boundary) {
    await isPruned(() => secateur.getBlock({ blockNumber }))
    await isPruned(() => secateur.getBlock({ blockHash: block.hash }))
    for (const { hash } of block.transactions) {
      await isPruned(() => secateur.getTransaction({ hash }))
      await isPruned(() => secateur.getTransactionReceipt({ hash }))
    }
    continue
  }
  const { hash: blockHash } = block
  for (const includeTransactions of [true, false]) {
    await same('block by number', node => node.getBlock({ blockNumber, includeTransactions }))
    await same('block by hash', node => node.getBlock({ blockHash, includeTransactions }))
  }
  counts.blocks += 1
  for (const { hash } of block.transactions) {
    await same('transaction', node => node.getTransaction({ hash }))
    const receipt = await same('receipt', node => node.getTransactionReceipt({ hash }))
    counts.transactions += 1
    counts.receipts += 1
    counts.logs += receipt.logs.length
  }
}

const fromBlock = boundary + 1n
const logs = await same('logs', node => node.getLogs({ fromBlock, toBlock: head }))
assert.equal(logs.length, counts.logs)
for (const address of new Set(logs.map(log => log.address))) {
  await same('logs of an address', node => node.getLogs({ address, fromBlock, toBlock: head }))
}
if (boundary >= 0n) await isPruned(() => secateur.getLogs({ fromBlock: boundary, toBlock: head }))
await assert.rejects(() => secateur.getTransaction({ hash: `0x${'12'.repeat(32)}` }), /could not be found/)

console.log(JSON.stringify(counts))
