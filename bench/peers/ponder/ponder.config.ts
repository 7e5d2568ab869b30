// The same work that Secateur is given: every event of one contract, from the first block to the last
// that has any. The rest is as Ponder comes.
import { createConfig } from "ponder";

const transfer = {
  type: "event",
  name: "Transfer",
  inputs: [
    { name: "from", type: "address", indexed: true },
    { name: "to", type: "address", indexed: true },
    { name: "value", type: "uint256", indexed: false },
  ],
} as const;

export default createConfig({
  chains: { anvil: { id: 31337, rpc: process.env.BENCH_RPC } },
  contracts: {
    Token: {
      chain: "anvil",
      abi: [transfer],
      address: process.env.BENCH_CONTRACT as `0x${string}`,
      startBlock: 0,
      endBlock: Number(process.env.BENCH_LAST),
    },
  },
});
