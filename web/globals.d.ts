// What tsc does not know of browsers yet, and that the selector of an element tells its kind.

interface JSON {
  rawJSON(text: string): object;
  isRawJSON(value: unknown): boolean;
}

interface ParentNode {
  querySelector(selectors: string): any;
  querySelectorAll(selectors: string): NodeListOf<any>;
}
