import stepwell from "./index.cjs";
export const { sandbox, start } = stepwell;
